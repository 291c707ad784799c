"""The command ``pykclient``."""
