from pykclient.confluent.message import (
    ConsumingState as ConsumingState,
    Delivery as Delivery,
    Message as Message,
    Outcome as Outcome,
    ProducingState as ProducingState,
    Reports as Reports,
    consumed as consumed,
)
