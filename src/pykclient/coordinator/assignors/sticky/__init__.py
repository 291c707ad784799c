"""The sticky assignor under kafka-python's module names."""
