"""Rules that find names, dates, numbers and titles of works in English text."""
