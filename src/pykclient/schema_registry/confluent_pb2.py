"""The messages of Confluent's own Protobuf files, for classes that protoc generated from files that import these.

Generated classes look the files up in Protobuf's default pool, so importing this module adds them there.
"""

from __future__ import annotations

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.internal import builder
from google.protobuf.json_format import ParseDict

from pykclient.schema_registry.protobuf import _CONFLUENT

_META, *_OTHERS = _CONFLUENT

_pool = descriptor_pool.Default()
#: The files. The pool takes a file a second time only if it is equal: the option is that of the generated one.
_files = [
    _pool.AddSerializedFile(ParseDict(each, descriptor_pb2.FileDescriptorProto()).SerializeToString())
    for each in ({**_META, "options": {"goPackage": "../confluent"}}, *_OTHERS)
]
DESCRIPTOR = _files[0]
for _each in _files:
    builder.BuildMessageAndEnumDescriptors(_each, globals())
    builder.BuildTopDescriptorsAndMessages(_each, __name__, globals())
