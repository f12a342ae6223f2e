from __future__ import annotations

import pytest


@pytest.fixture
def daemon(shared_code, tmp_path, tree):
    return shared_code("mps/fake_daemon.py").FakeDaemon(tmp_path / "pipe", tree)
