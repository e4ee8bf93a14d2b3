"""Decode the bytes of records into rows: what a topic, a socket or a file of lines carries (SEMANTICS 9.3).

A format is one file here, one line below and one test module. It is one class with two methods:

    class Upper(Format):
        def columns(self): return pa.schema([("word", pa.string())])
        def decode(self, values, schema): ...

It is pickled with the reader and sent to every task, so it holds settings only. A record that cannot be decoded is a
row of nulls with an error, and nothing that a record holds raises.
"""

from penstock.sources.formats.arrow_function import ArrowFunction
from penstock.sources.formats.avro import Avro
from penstock.sources.formats.base import Decoded, Format
from penstock.sources.formats.csv import Csv
from penstock.sources.formats.json import Json
from penstock.sources.formats.raw import Raw
from penstock.sources.formats.text import Text

__all__ = ["ArrowFunction", "Avro", "Csv", "Decoded", "Format", "Json", "Raw", "Text"]
