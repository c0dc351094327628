"""HeadTable: a row per head; files, comparison, views."""
