from pykclient.schema_registry.avro_writing import encode as encode
