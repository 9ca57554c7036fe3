"""Executes the steps of deploy/Dockerfile without a container daemon, as root: each stage is an
overlay over the root of the one that it is made from, and RUN is a chroot.

python -m tests.deploy.clean_root build FOLDER TARGET    FOLDER/debian is made by debootstrap
python -m tests.deploy.clean_root run FOLDER TARGET COMMAND …    as the user of the image
python -m tests.deploy.clean_root clean FOLDER

PATHS in CLEAN_ROOT_BINDS, joined by colons, are mounted in each root, such as a local mirror. What
this does not have of a container: limits, namespaces, HEALTHCHECK and the image itself.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from configs.settings import PROJECT_DIR

DOCKERFILE = PROJECT_DIR / "deploy" / "Dockerfile"
SYSTEM = ("/proc", "/sys", "/dev", "/dev/shm", "/etc/resolv.conf")


@dataclass
class Stage:
    """One stage of the Dockerfile, with the stage or image that it is made from."""

    name: str
    parent: str
    steps: list[tuple[str, str]] = field(default_factory=list)


def stages() -> dict[str, Stage]:
    """The stages by name, with joined lines and without comments."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    found: dict[str, Stage] = {}
    for line in re.sub(r"\\\n", " ", text).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            parent, _, name = rest.split()
            found[name] = stage = Stage(name, parent)
        elif word:
            stage.steps.append((word, rest.strip()))
    return found


def chain(name: str, known: Mapping[str, Stage]) -> list[Stage]:
    """The stages of an image, the first one first."""
    stage = known[name]
    return [*(chain(stage.parent, known) if stage.parent in known else []), stage]


def environment(name: str) -> dict[str, str]:
    """What ENV sets in a stage."""
    found = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    for stage in chain(name, stages()):
        for word, rest in stage.steps:
            if word == "ENV":
                for pair in shlex.split(rest):
                    key, _, value = pair.partition("=")
                    found[key] = value.replace("$PATH", found["PATH"])
    return found


class Roots:
    """The mounted roots under a folder, one for each stage."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stages = stages()

    def root(self, name: str) -> Path:
        return self.folder / name / "root" if name in self.stages else self.folder / "debian"

    def build(self, name: str) -> None:
        """Makes the stages that it needs, and then this one, once."""
        stage, top = self.stages[name], self.folder / name
        sources = [re.search(r"--from=(\S+)", rest) for _, rest in stage.steps]
        for needed in [stage.parent, *(found[1] for found in sources if found)]:
            if needed in self.stages:
                self.build(needed)
        if (top / "done").exists():
            return
        for part in ("root", "upper", "work"):
            (top / part).mkdir(parents=True, exist_ok=True)
        lower = [self.folder / one.name / "upper" for one in chain(name, self.stages)[-2::-1]]
        layers = ":".join(map(str, [*lower, self.folder / "debian"]))
        options = f"lowerdir={layers},upperdir={top / 'upper'},workdir={top / 'work'}"
        mount("-t", "overlay", "overlay", "-o", options, str(self.root(name)))
        for path in [*SYSTEM, *filter(None, os.environ.get("CLEAN_ROOT_BINDS", "").split(":"))]:
            inside = self.root(name) / path.lstrip("/")
            if Path(path).is_dir():
                inside.mkdir(parents=True, exist_ok=True)
            else:
                inside.parent.mkdir(parents=True, exist_ok=True)
                inside.touch()
            mount("--bind", path, str(inside))
        folder = user = "/"
        for before in chain(name, self.stages):
            for word, rest in before.steps:
                folder = rest if word == "WORKDIR" else folder
                user = rest if word == "USER" else user
                if before is stage:
                    self.step(name, word, rest, folder, user)
        (top / "done").touch()

    def step(self, name: str, word: str, rest: str, folder: str, user: str) -> None:
        root = self.root(name)
        if word == "WORKDIR":
            (root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "RUN":
            sys.stdout.write(f"[{name}] RUN {rest[:90]}\n")
            command = re.sub(r"--mount=\S+\s*", "", rest)
            self.execute(name, ["sh", "-c", command], folder, user, keep=os.environ)
        elif word == "COPY":
            sys.stdout.write(f"[{name}] COPY {rest}\n")
            *given, target = rest.split()
            options = [one for one in given if one.startswith("--from=")]
            origin = self.root(options[0].removeprefix("--from=")) if options else PROJECT_DIR
            place = root / os.path.join(folder, target).lstrip("/")
            for source in (one for one in given if one not in options):
                copy(origin, source.lstrip("/"), place, is_folder=target.endswith("/"))

    def execute(
        self, name: str, command: list[str], folder: str, user: str, keep: Mapping[str, str]
    ) -> None:
        who = [] if user == "/" else [f"--userspec={user}"]
        chroot = ["chroot", *who, str(self.root(name))]
        script = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', folder, *command]
        variables = {**keep, "HOME": "/root" if user == "/" else "/home/antiphon"}
        subprocess.run([*chroot, *script], env={**variables, **environment(name)}, check=True)


def copy(origin: Path, source: str, place: Path, *, is_folder: bool) -> None:
    """COPY of one source; the context is what git tracks and .dockerignore lets through."""
    if origin != PROJECT_DIR:
        target = place / Path(source).name if is_folder else place
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", "-T", origin / source, target], check=True)
        return
    for path in context():
        if source == "." or path == source:
            target = place / path if source == "." else place / Path(path).name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT_DIR / path, target)


def context() -> list[str]:
    """The files that .dockerignore lets through."""
    listed = (PROJECT_DIR / ".dockerignore").read_text().split()
    wanted = [line.removeprefix("!/") for line in listed if line.startswith("!/")]
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *wanted]
    found = subprocess.run(command, cwd=PROJECT_DIR, capture_output=True, text=True, check=True)
    return found.stdout.split()


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def main() -> None:
    action, folder, *rest = sys.argv[1:]
    roots = Roots(Path(folder).resolve())
    if action == "build":
        roots.build(rest[0])
    elif action == "run":
        roots.execute(rest[0], rest[1:], "/app", "10001:10001", keep={})
    elif action == "clean":
        mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for path in reversed(mounted):
            if Path(path).is_relative_to(roots.folder):
                subprocess.run(["umount", path], check=True)
        shutil.rmtree(roots.folder)


if __name__ == "__main__":
    main()
