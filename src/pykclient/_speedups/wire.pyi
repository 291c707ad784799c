from typing import ClassVar
from uuid import UUID

from pykclient.protocol.wire import PythonReader

class Reader(PythonReader):
    _twin: ClassVar[type[PythonReader]]
    _uuids: ClassVar[dict[bytes, UUID]]
