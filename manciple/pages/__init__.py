"""What all pages share: who looks, how times read, how a part of a page keeps itself true."""
