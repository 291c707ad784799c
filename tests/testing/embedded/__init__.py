"""The embedded cluster as users see it: its interface, the plugin, the documentation."""
