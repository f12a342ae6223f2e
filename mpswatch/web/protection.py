"""Who may read: HTTP basic authentication with bcrypt, checked in a thread, its results remembered safely.

A check costs some 60 ms of CPU, so a right answer is remembered, keyed by a digest of the credentials under a
secret of this process. Checks run one after another in one thread of their own and only a few may wait: a flood of
wrong passwords costs one core at most, and whoever is remembered is served all the same.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from enum import Enum

from mpswatch.web.settings import WebSettings
from mpswatch.web.webfile import WebFile
from mpswatch.web.worker import Worker

REMEMBERED = 256
MAY_WAIT = 8
MAX_CREDENTIALS = 1024

# Salt and digest that users who do not exist are checked against, so that they take as long as those who do.
_NOBODY = b"$QnvVqGl0Kc0pRJtYrZsWcO7mB1mG5rmLkcE0yX7l1zN3mJ5oW8yQe"


class Answer(Enum):
    """What a request's credentials are worth."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    BUSY = "busy"


class Protection:
    """Holds the web settings in force and checks credentials against them. For one event loop.

    `settings` may be replaced at any time (a reload); what was remembered is then forgotten.
    """

    def __init__(self, web_file: WebFile | None = None) -> None:
        self._settings = web_file.settings if web_file is not None else WebSettings()
        self._secret = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, Answer] = OrderedDict()
        self._waiting: dict[bytes, asyncio.Future[Answer]] = {}
        self._worker = Worker("mpswatch-bcrypt")

    @property
    def settings(self) -> WebSettings:
        return self._settings

    def replace(self, web_file: WebFile) -> None:
        """Take new settings; what was remembered of the old ones is forgotten."""
        self._settings = web_file.settings
        self._secret = secrets.token_bytes(32)
        self._remembered.clear()

    async def check(self, authorization: str | None) -> Answer:
        """Say what an Authorization header is worth; without users, everything is admitted."""
        if not self._settings.users:
            return Answer.ADMITTED
        credentials = _basic(authorization)
        if credentials is None:
            return Answer.REFUSED
        user, password = credentials
        key = hmac.new(self._secret, user + b"\0" + password, hashlib.sha256).digest()
        if key in self._remembered:
            self._remembered.move_to_end(key)
            return self._remembered[key]
        if key not in self._waiting:
            if len(self._waiting) >= MAY_WAIT:
                return Answer.BUSY
            self._waiting[key] = asyncio.ensure_future(self._ask(key, user, password))
        return await asyncio.shield(self._waiting[key])

    async def _ask(self, key: bytes, user: bytes, password: bytes) -> Answer:
        secret, users = self._secret, self._settings.users
        hashed = _hash_of(users, user)
        like = next(iter(users.values()))
        try:
            right = await self._worker.run(lambda: _fits(password, hashed, like))
        finally:
            del self._waiting[key]
        answer = Answer.ADMITTED if right else Answer.REFUSED
        if secret is self._secret:  # no reload in between
            self._remembered[key] = answer
            while len(self._remembered) > REMEMBERED:
                self._forget_one()
        return answer

    def _forget_one(self) -> None:
        """Forget the oldest wrong answer first, so that a flood of them pushes nobody out."""
        wrong = next((key for key, answer in self._remembered.items() if answer is Answer.REFUSED), None)
        if wrong is not None:
            del self._remembered[wrong]
        else:
            self._remembered.popitem(last=False)


def _fits(password: bytes, hashed: bytes | None, like: bytes) -> bool:
    """Check a password in a thread. An unknown user's is checked too, against a hash of the same cost, and fails."""
    try:
        import bcrypt  # noqa: PLC0415 - half a megabyte, where no password is ever asked

        right = bcrypt.checkpw(password, hashed if hashed is not None else b"$2b$" + like[4:6] + _NOBODY)
    except ValueError:
        return False
    return right and hashed is not None


def _hash_of(users: Mapping[str, bytes], user: bytes) -> bytes | None:
    try:
        return users.get(user.decode())
    except UnicodeDecodeError:
        return None


def _basic(authorization: str | None) -> tuple[bytes, bytes] | None:
    """Take apart `Basic base64(user:password)`; None for anything else. bcrypt reads 72 bytes of a password."""
    if authorization is None or len(authorization) > MAX_CREDENTIALS:
        return None
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    if not colon or b"\0" in password:
        return None
    return user, password[:72]
