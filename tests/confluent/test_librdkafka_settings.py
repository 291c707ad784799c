"""The table of librdkafka's settings."""

from __future__ import annotations

import re

from pykclient.config.admin_config import AdminClientConfig
from pykclient.config.consumer_config import ConsumerConfig
from pykclient.config.librdkafka_settings import HONOURED, IGNORED, REFUSED, SETTINGS
from pykclient.config.producer_config import ProducerConfig

_OURS = {*ProducerConfig.DEFINITION.keys, *ConsumerConfig.DEFINITION.keys, *AdminClientConfig.DEFINITION.keys}
_KEY = re.compile(r"[a-z0-9]+(\.[a-z0-9]+)+")


def test_each_setting_has_a_treatment_and_a_note() -> None:
    assert len(SETTINGS) > 190
    for name, setting in SETTINGS.items():
        assert setting.treatment in {HONOURED, IGNORED, REFUSED}, name
        assert setting.note, name


def test_honoured_settings_name_keys_that_exist() -> None:
    for name, setting in SETTINGS.items():
        if setting.treatment == HONOURED and _KEY.fullmatch(setting.note):
            assert setting.note in _OURS or setting.note in {"default.topic.config", "pykclient.confluent"}, name


def test_defaults_are_among_the_values() -> None:
    for name, setting in SETTINGS.items():
        if " .. " in setting.values:
            low, high = setting.values.split(" .. ")
            assert int(low) <= int(setting.default) <= int(high), name
        elif setting.values == "true, false":
            assert setting.default in {"true", "false"}, name
