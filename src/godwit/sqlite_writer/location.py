"""Where a database may lie: file systems whose locks or shared memory cannot be trusted are refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from godwit.core.errors import StorageUnsupported

REMOTE: Final = frozenset({
    "9p", "afs", "ceph", "cifs", "fuse.davfs", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "gfs2",
    "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb2", "smb3", "smbfs",
})  # fmt: skip
MOUNTS: Final = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")


def file_system(path: str, mountinfo: str) -> str | None:
    """Return the type of the file system an absolute path lies on, from the text of /proc/self/mountinfo."""
    best, found = -1, None
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        parts = fields.split(" ")
        if len(parts) < 5 or not rest:  # noqa: PLR2004
            continue
        mount = _OCTAL.sub(lambda match: chr(int(match[1], 8)), parts[4])
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= best:  # the later of two mounts on one place hides the earlier
            best, found = len(mount), rest.split(" ")[0]
    return found


def check_location(path: Path) -> None:
    """Refuse network file systems: several machines would write one file, and locks do not reach that far."""
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    kind = file_system(str(path), mounts)
    if kind in REMOTE:
        raise StorageUnsupported(str(path), f"it lies on a network file system ({kind})")
