"""Signs with cosign and a key on this machine. The workflow signs without a key, with its identity at GitHub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.release.programs import run
from tests.tools import tool

# Nothing is published: no entry in the public transparency log, and no request to Sigstore.
_OFFLINE = ("--yes", "--use-signing-config=false", "--tlog-upload=false")
_NO_LOG = "--insecure-ignore-tlog"
_HTTP = "--allow-http-registry"


@dataclass(frozen=True)
class Signer:
    """A key pair for cosign. The password of the private key is in COSIGN_PASSWORD."""

    key: Path
    public_key: Path
    password: str | None

    @classmethod
    def create(cls, folder: Path, key: str | None) -> Signer:
        """Return a signer with the private key in the file `key`, or with a new key pair in `folder`."""
        public = folder / "cosign.pub"
        if key is None:
            signer = cls(folder / "cosign.key", public, "")
            signer._cosign("generate-key-pair", "--output-key-prefix", str(folder / "cosign"))
            return signer
        signer = cls(Path(key).expanduser(), public, None)
        signer._cosign("public-key", "--key", str(signer.key), "--outfile", str(public))
        return signer

    def sign_file(self, file: Path, bundle: Path) -> None:
        self._cosign("sign-blob", *_OFFLINE, f"--key={self.key}", f"--bundle={bundle}", str(file))

    def verify_file(self, file: Path, bundle: Path) -> None:
        self._cosign("verify-blob", _NO_LOG, f"--key={self.public_key}", f"--bundle={bundle}", str(file))

    def sign(self, reference: str) -> None:
        """Sign an artifact in a registry; `reference` has the form HOST/PATH@DIGEST."""
        self._cosign("sign", *_OFFLINE, _HTTP, f"--key={self.key}", reference)

    def verify(self, reference: str) -> None:
        self._cosign("verify", _NO_LOG, _HTTP, f"--key={self.public_key}", reference)

    def attach_sbom(self, reference: str, sbom: Path) -> None:
        """Attach a signed SBOM (SPDX) to an artifact in a registry."""
        about = (f"--key={self.key}", "--type=spdxjson", f"--predicate={sbom}")
        self._cosign("attest", *_OFFLINE, _HTTP, *about, reference)

    def verify_sbom(self, reference: str) -> None:
        self._cosign("verify-attestation", _NO_LOG, _HTTP, f"--key={self.public_key}", "--type=spdxjson", reference)

    def _cosign(self, *arguments: str) -> None:
        run([str(tool("cosign")), *arguments], {} if self.password is None else {"COSIGN_PASSWORD": self.password})
