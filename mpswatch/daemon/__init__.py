"""The wiring: schedule, signals, systemd, shutdown order. Domain logic lives in the rooms below."""
