from typing import ClassVar
from uuid import UUID

from pykclient.protocol.wire import PythonReader, PythonWriter

class Reader(PythonReader):
    _twin: ClassVar[type[PythonReader]]
    _uuids: ClassVar[dict[bytes, UUID]]

class Writer(PythonWriter):
    _twin: ClassVar[type[PythonWriter]]
    _copy_below: ClassVar[int]
