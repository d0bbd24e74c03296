"""A certificate authority for one test session: the API server's certificate and one for each user."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Authority:
    """Signs certificates that are valid for one day; each is a pair of PEM files in `folder`.

    The keys are elliptic-curve keys, because these are generated in 1 ms.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test-authority")])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        certificate = _builder(self._name, self._name, self._key).add_extension(constraints, critical=True)
        self.certificate = folder / "authority.crt"
        self.certificate.write_bytes(_pem(certificate.sign(self._key, hashes.SHA256())))

    def issue(self, name: str, groups: tuple[str, ...] = (), hosts: tuple[str, ...] = ()) -> tuple[Path, Path]:
        """The files (certificate, key) for the user `name` in `groups`, or for a server with the names `hosts`."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = _builder(subject, self._name, key).add_extension(usage, critical=False)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(h) for h in hosts]), critical=False)
        stem = self.folder / f"{len(list(self.folder.iterdir()))}-{name.replace('/', '_').replace(':', '_')}"
        certificate, private = stem.with_suffix(".crt"), stem.with_suffix(".key")
        certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        private.write_bytes(_private(key))
        return certificate, private

    def key_pair(self, name: str) -> tuple[Path, Path]:
        """The files (public, private) of a key pair, with which tokens of service accounts are signed."""
        key = ec.generate_private_key(ec.SECP256R1())
        public, private = self.folder / f"{name}.pub", self.folder / f"{name}.key"
        encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        public.write_bytes(key.public_key().public_bytes(encoding, form))
        private.write_bytes(_private(key))
        return public, private


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - datetime.timedelta(hours=1),
        not_valid_after=now + datetime.timedelta(days=1),
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
