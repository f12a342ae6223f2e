"""The measuring program: one capped matmul client a cell. It stands alone: Python 3.8 or newer and torch (or numpy).

It imports nothing of the rest of mpswatch and uses relative imports only, so that it also runs from the zipapp
that `mpswatch.process.bundle` makes. The rule that everything here serves: no process ends with work in flight.
"""
