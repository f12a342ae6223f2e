"""Copies of the archive beyond this machine: local first, then copied, by a short program of its own.

`python -m mpswatch.remote DIRECTORY URL` copies every run that the target lacks and prints one JSON report. What is
missing there is found by looking there, so nothing is remembered here: a target that was down is caught up with by
the next call, and a call that was cut short is no harm. Any fsspec URL will do (s3://bucket/path, gs://, file:///mnt);
credentials and endpoints come from the environment or fsspec's own configuration, never from a command line.

A program and not a module of the daemon's: s3fs alone would add 21 MiB to it, and a target that hangs is ended with
this program, which never has a CUDA context.
"""
