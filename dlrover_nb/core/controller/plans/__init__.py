"""Plans: what is proposed, decided, carried out, and how it came out."""
