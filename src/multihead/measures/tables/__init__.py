"""HeadTable: a row per head, a column per measure; kept, shown, compared."""
