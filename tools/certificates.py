"""Certificates for servers on loopback: an authority, and what it has signed."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["Certificates"]


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files in a folder: the authority's certificate, and certificate and key of a server and of a client."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> Certificates:
        """Make them, of an authority that nobody else trusts."""
        folder.mkdir(parents=True)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"authority of {folder.name}")
        self, authority = cls(folder), _certificate(name, key, name, key, is_authority=True)
        self.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
        for own in ("server", "client"):
            own_key = ec.generate_private_key(ec.SECP256R1())
            signed = _certificate(_name(own), own_key, name, key).public_bytes(serialization.Encoding.PEM)
            secret = own_key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            (folder / f"{own}.crt").write_bytes(signed)
            (folder / f"{own}.key").write_bytes(secret)
            (folder / f"{own}.pem").write_bytes(secret + signed)
        return self

    @property
    def authority(self) -> Path:
        """Return the certificate that who trusts the servers must have."""
        return self.folder / "authority.crt"

    @property
    def server_both(self) -> Path:
        """Return the server's key and certificate in one file."""
        return self.folder / "server.pem"

    @property
    def server_context(self) -> ssl.SSLContext:
        """Return what Python's servers take."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server_both)
        return context

    @property
    def client_options(self) -> dict[str, str]:
        """Return librdkafka's settings of a client with a certificate."""
        return {
            "ssl.certificate.location": str(self.folder / "client.crt"),
            "ssl.key.location": str(self.folder / "client.key"),
        }


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, issuer: x509.Name, issuer_key: ec.EllipticCurvePrivateKey, *,
    is_authority: bool = False,
) -> x509.Certificate:  # fmt: skip
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=7))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(names, critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
