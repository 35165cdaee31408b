"""Files as such: opened, told apart by their first bytes, pictures among them; free of TFX."""
