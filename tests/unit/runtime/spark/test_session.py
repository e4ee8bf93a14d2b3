"""What a session changes of the libraries below it; its settings are tested with what starts drivers."""

from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j import protocol

from penstock.runtime.spark import session


@given(st.binary())
def test_bytes_of_java_are_those_that_py4j_decodes(sent: bytes) -> None:
    """DESIGN 12: receipts come as byte arrays, and take no time for each byte."""
    encoded = b64encode(sent).decode()
    theirs = protocol.decode_bytearray(encoded)  # the converter itself is ours once any test has opened a session
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "OUTPUT_CONVERTER", {**protocol.OUTPUT_CONVERTER})
        session._decode_bytes_at_once()
        ours = protocol.OUTPUT_CONVERTER[protocol.BYTES_TYPE](encoded, None)
    assert (type(ours), ours) == (type(theirs), theirs)
    assert ours == sent
