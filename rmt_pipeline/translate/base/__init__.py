"""The basis of all translations: typed SQL, casts, and checks of arguments."""
