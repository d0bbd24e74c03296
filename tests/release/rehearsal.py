"""Does on a registry of this machine what the workflow does on the public one: push, sign, verify, attach, pull."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.local_registry import registry
from tests.release.programs import run
from tests.release.signing import Signer
from tests.release.versions import ReleaseError
from tests.tools import tool


def rehearse(charts: Sequence[Path], sbom: Path, signer: Signer, folder: Path) -> None:
    """Push, sign, verify and pull the archives of the charts. Raises ReleaseError if anything of it fails."""
    with registry(folder) as host:
        for archive in charts:
            reference = push(archive, f"{host}/charts")
            signer.sign(reference)
            signer.verify(reference)
            signer.attach_sbom(reference, sbom)
            signer.verify_sbom(reference)
            pull(archive, f"{host}/charts", folder / "pulled")
        check_that_a_missing_signature_is_found(charts[0], host, signer)


def push(archive: Path, repository: str) -> str:
    """Push the archive of a chart to a registry without TLS, and return its reference with the digest."""
    printed = run([str(tool("helm")), "push", str(archive), f"oci://{repository}", "--plain-http"])
    digest = re.search(r"sha256:[0-9a-f]{64}", printed)
    if digest is None:
        raise ReleaseError(f"helm push of {archive.name} printed no digest:\n{printed}")
    return f"{repository}/{_name(archive)}@{digest[0]}"


def pull(archive: Path, repository: str, folder: Path) -> None:
    """Pull the chart as a user does. Raises ReleaseError if it is not the archive that was pushed."""
    folder.mkdir(exist_ok=True)
    version = archive.stem.removeprefix(f"{_name(archive)}-")
    command = ["pull", f"oci://{repository}/{_name(archive)}", "--version", version, "--plain-http"]
    run([str(tool("helm")), *command, "--destination", str(folder)])
    if (folder / archive.name).read_bytes() != archive.read_bytes():
        raise ReleaseError(f"The registry returned another {archive.name} than the one that was pushed.")


def check_that_a_missing_signature_is_found(archive: Path, host: str, signer: Signer) -> None:
    """Raise ReleaseError if cosign verifies a chart that is not signed."""
    reference = push(archive, f"{host}/unsigned")
    try:
        signer.verify(reference)
    except ReleaseError:
        return
    raise ReleaseError(f"cosign verified {reference}, although it is not signed.")


def _name(archive: Path) -> str:
    return re.sub(r"-\d+\.\d+\.\d+\.tgz$", "", archive.name)
