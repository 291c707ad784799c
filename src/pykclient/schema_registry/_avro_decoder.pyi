from pykclient.schema_registry.avro_decoder import Column as Column
from pykclient.schema_registry.avro_decoder import Decoder as Decoder
from pykclient.schema_registry.avro_decoder import next_other as next_other
