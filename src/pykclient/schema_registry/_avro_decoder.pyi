from pykclient.schema_registry.avro_decoder import Column as Column, Decoder as Decoder, next_other as next_other
