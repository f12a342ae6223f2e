"""Documents become metric families: names, help and labels in one table, values from one immutable view.

For the daemon (signatures): `Exposition(latest, Options(tenant_names=20, pid_labels=False))`, which web renders
from; `families(view, options)` is pure and cannot raise.
"""
