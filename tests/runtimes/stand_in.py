"""A strict stand-in for docker's command line: what it does not know of `run -i` and `exec -i` it refuses.

As with the real one the program and the container are two: the container is another session in a pid namespace of its
own, reached through pipes that the program serves. When the program is gone the container sees end-of-file, and no
signal. Images: `torch-image`; containers: `embedder`. Needs root (unshare).
"""

from __future__ import annotations

import os
import select
import subprocess
import sys

IMAGE, CONTAINER = "torch-image", "embedder"
MUST = {"--rm", "-i", "--sig-proxy=false", "--pull=never"}
MAY = {"--log-driver=none", "--network=none", "--ipc=host"}
WITH_VALUE = {"--user", "--label", "-v", "-e", "--entrypoint", "--gpus", "--device"}


def fail(status: int, words: str) -> None:
    print(f"docker: {words}", file=sys.stderr)
    sys.exit(status)


def parse(
    words: list[str], *, must: set[str], may: set[str], with_value: set[str]
) -> tuple[dict[str, list[str]], list[str]]:
    given: dict[str, list[str]] = {}
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word in with_value:
            given.setdefault(word, []).append(words.pop(0))
        elif word in must | may:
            given[word] = []
        else:
            fail(125, f"unknown flag: {word}")
    if missing := must - given.keys():
        fail(125, f"the test wants {sorted(missing)}")
    return given, words


def run(words: list[str]) -> int:
    given, (image, *arguments) = parse(words, must=MUST, may=MAY, with_value=WITH_VALUE)
    if image != IMAGE:
        fail(125, f"Unable to find image '{image}' locally")
    mounts = {}
    for mount in given["-v"]:
        there, here, *mode = mount.split(":")
        if not os.path.exists(there):  # noqa: PTH110 - a stand-in without ceremony
            fail(125, f"{there} is not there")
        if here.endswith(".pyz") and mode != ["ro"]:
            fail(125, "the client is to be mounted read-only")
        mounts[here] = there
    arguments = [mounts.get(word, word) for word in arguments]
    return serve([*given["--entrypoint"], *arguments], given)


def exec_(words: list[str]) -> int:
    given, (container, *arguments) = parse(words, must={"-i"}, may=set(), with_value={"--user", "-e"})
    if container != CONTAINER:
        fail(1, f"No such container: {container}")
    return serve(arguments, given)


def serve(arguments: list[str], given: dict[str, list[str]]) -> int:
    """Run it as a container, and pass on what it says and what it is told until one of the two is over."""
    program = sys.executable if arguments[0] == "python3" else arguments[0]
    environment = dict(word.split("=", 1) for word in given["-e"])
    user = given["--user"][0]
    as_user = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--"] if int(user) != os.geteuid() else []
    container = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--mount-proc", "setsid", *as_user, program, *arguments[1:]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "HOME": "/", **environment},
        restore_signals=True,
        start_new_session=True,
    )
    assert container.stdin is not None
    assert container.stdout is not None
    told, said = 0, container.stdout.fileno()
    listening = [told, said]
    while said in listening:
        for ready in select.select(listening, [], [])[0]:
            data = os.read(ready, 65536)
            if not data:
                listening.remove(ready)
                if ready == told:
                    container.stdin.close()
            elif ready == told:
                container.stdin.write(data)
                container.stdin.flush()
            else:
                os.write(1, data)
    return container.wait()


def main() -> int:
    command, *words = sys.argv[1:]
    if command == "run":
        return run(words)
    if command == "exec":
        return exec_(words)
    if command in {"image", "container"} and words[0] == "inspect":
        return 0 if words[1] in {IMAGE, CONTAINER} else 1
    fail(125, f"'{command}' is not a docker command")
    return 125


if __name__ == "__main__":
    sys.exit(main())
