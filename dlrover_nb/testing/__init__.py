"""Tools to rehearse what may go wrong with one's own jobs; no other part of the product imports them."""
