from pykclient.schema_registry.avro_decoder import Column as Column, Decoder as Decoder, Rows as Rows
