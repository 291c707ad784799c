"""The embedded cluster as users have it: its face, the plugin, the documentation."""
