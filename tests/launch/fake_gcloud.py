"""A `gcloud` that has no cloud: it writes down how it is called and answers from a script of what happens.

`FAKE_CLOUD` names a folder. `script.json` there is a list of lives, one for each creation of the slice:

    refused   what the creation fails with, instead of making anything
    request   states of the queued resource, one for each time it is asked for; the last one stays
    error     what a failed request says
    setup     host -> what it fails to be set up with
    taken     true: preempted while it is set up
    looks     host -> [state, printed] for each time it is looked at; the last one stays
    then      the state of the slice once host 0 was looked at so often (default READY)
    stuck     true: it cannot be deleted

As long as there is a file `silent`, no call comes through. `world.json` is what there is now, `calls` a line of JSON
for each call.
"""

import fcntl
import io
import json
import os
import re
import sys
import tarfile
from pathlib import Path

ADDRESSES = "10.0.0.2;10.0.0.3"
GONE = "NOT_FOUND: Resource was not found"


class Fails(Exception):
    pass


def answer(words: list[str], world: dict, lives: list[dict]) -> bytes | str:
    flags = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
    if words[0] == "alpha":
        words = words[1:]
    elif "reservation" in flags:
        raise Fails(
            "unrecognized arguments: --reservation flag is available in one or more alternate release tracks"
        )
    group, verb = words[2:4]
    life = lives[world["life"]] if world["life"] >= 0 else {}
    if verb == "create":
        if world["node"] or world["request"]:
            raise Fails("ALREADY_EXISTS")
        world.update(life=world["life"] + 1, asked=0, looked={}, started=[], taken=False)
        life = lives[world["life"]]
        if "refused" in life:
            raise Fails(life["refused"])
        world["request"], world["node"] = group == "queued-resources", group == "tpu-vm"
        return ""
    if verb == "delete":
        if not life.get("stuck"):
            there = world["request"] if group == "queued-resources" else world["node"]
            world["node"] = world["request"] = False
            if not there:
                raise Fails(GONE)
        return ""
    if verb == "describe" and group == "queued-resources":
        if not world["request"]:
            raise Fails(GONE)
        if "failedData" in flags["format"]:
            return life.get("error", "")
        states = life.get("request", ["ACTIVE"])
        state = states[min(world["asked"], len(states) - 1)]
        world["asked"] += 1
        world["node"] |= state == "ACTIVE"
        return state
    if not world["node"]:
        raise Fails(GONE)
    looks = life.get("looks", {})
    over = world["taken"] or "then" in life and world["looked"].get("0", 0) >= len(looks["0"])
    if verb == "describe":
        if "ipAddress" in flags["format"]:
            return ADDRESSES
        return life.get("then", "PREEMPTED") if over else "READY"
    if over:
        raise Fails("the TPU is in a state in which it cannot be reached")
    if verb == "scp":
        return ""
    host = flags["worker"]
    word, *rest = re.search(r"on_host\.sh (.*)", flags["command"])[1].split()
    if word == "setup" and host in life.get("setup", {}):
        raise Fails(life["setup"][host])
    if word == "setup" and life.get("taken"):
        world["taken"] = True
        raise Fails("the connection was closed")
    if word == "start":
        world["printed"][host] = ""
        world["started"].append(host)
    if word == "look":
        if host not in world["started"]:
            return "none\n"
        n = world["looked"].get(host, 0)
        world["looked"][host] = n + 1
        state, printed = looks[host][min(n, len(looks[host]) - 1)]
        world["printed"][host] += printed if n < len(looks[host]) else ""
        return f"{state}\n{world['printed'][host][int(rest[-1]) :]}"
    if word == "send":
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("model/config.json"))
        return out.getvalue()
    return ""


def main() -> None:
    here = Path(os.environ["FAKE_CLOUD"])
    if (here / "silent").exists():
        sys.exit("ERROR: the network is unreachable")
    with open(here / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lives = json.loads((here / "script.json").read_text())
        path = here / "world.json"
        nothing = {"life": -1, "node": False, "request": False, "printed": {}}
        world = json.loads(path.read_text()) if path.exists() else nothing
        with open(here / "calls", "a") as calls:
            calls.write(json.dumps(sys.argv[1:]) + "\n")
        try:
            out = answer(sys.argv[1:], world, lives)
        except Fails as error:
            sys.exit(f"ERROR: (gcloud.{'.'.join(sys.argv[1:5])}) {error}")
        finally:
            path.write_text(json.dumps(world))
    sys.stdout.buffer.write(out if isinstance(out, bytes) else out.encode())


if __name__ == "__main__":
    main()
