from __future__ import annotations

import pytest

from pykclient.record import CompressionRatioEstimator, CompressionType


def test_ratio_estimate_falls_slowly_and_rises_fast() -> None:
    topic = "estimates-move"
    estimator = CompressionRatioEstimator
    assert estimator.estimation(topic, CompressionType.LZ4) == 1.0
    assert estimator.update_estimation(topic, CompressionType.LZ4, 0.5) == pytest.approx(0.995)
    for _ in range(200):
        estimator.update_estimation(topic, CompressionType.LZ4, 0.5)
    assert estimator.estimation(topic, CompressionType.LZ4) == pytest.approx(0.5)
    assert estimator.update_estimation(topic, CompressionType.LZ4, 0.51) == pytest.approx(0.55)
    assert estimator.update_estimation(topic, CompressionType.LZ4, 0.9) == pytest.approx(0.9)
    assert estimator.update_estimation(topic, CompressionType.LZ4, 0.9) == pytest.approx(0.9)
    assert estimator.estimation(topic, CompressionType.ZSTD) == 1.0
    assert estimator.estimation("another-topic", CompressionType.LZ4) == 1.0
    estimator.set_estimation(topic, CompressionType.ZSTD, 0.3)
    assert estimator.estimation(topic, CompressionType.ZSTD) == 0.3
    estimator.reset_estimation(topic)
    assert estimator.estimation(topic, CompressionType.LZ4) == 1.0
    assert estimator.estimation(topic, CompressionType.ZSTD) == 1.0
