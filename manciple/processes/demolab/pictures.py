"""Makes PNG pictures of pages small: a page has few colours, so 256 of them in a palette are enough.

The browser that took the picture counts the colours and packs the pixels; here they are put into a file.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

_COUNT_AND_PACK = """async (picture) => {
  const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${picture}`)).blob());
  const { width, height } = image;
  const context = new OffscreenCanvas(width, height).getContext("2d", { colorSpace: "srgb" });
  context.drawImage(image, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, width, height).data.buffer);
  const counted = new Map();
  for (const pixel of pixels) counted.set(pixel, (counted.get(pixel) ?? 0) + 1);
  const palette = [...counted].sort((one, other) => other[1] - one[1]).slice(0, 256).map(([pixel]) => pixel);
  const parts = (pixel) => [pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255];
  const colours = palette.map(parts);
  const nearest = (pixel) => {
    const [red, green, blue] = parts(pixel);
    let best = 0, least = Infinity;
    colours.forEach(([r, g, b], index) => {
      const distance = (r - red) ** 2 + (g - green) ** 2 + (b - blue) ** 2;
      if (distance < least) { least = distance; best = index; }
    });
    return best;
  };
  const index = new Map(palette.map((pixel, at) => [pixel, at]));
  const rows = new Uint8Array(height * (width + 1)); // each begins with 0: no filter
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) {
    const pixel = pixels[y * width + x];
    if (!index.has(pixel)) index.set(pixel, nearest(pixel));
    rows[y * (width + 1) + x + 1] = index.get(pixel);
  }
  const packed = new Response(new Blob([rows]).stream().pipeThrough(new CompressionStream("deflate")));
  let text = "";
  for (const byte of new Uint8Array(await packed.arrayBuffer())) text += String.fromCharCode(byte);
  return { width, height, colours: colours.flat(), data: btoa(text) };
}"""


def shrunk(page: Any, picture: bytes) -> bytes:
    """`picture` with a palette; unchanged where that is not smaller. page: a blank page of the browser."""
    found = page.evaluate(_COUNT_AND_PACK, base64.b64encode(picture).decode())
    header = struct.pack(">IIBBBBB", found["width"], found["height"], 8, 3, 0, 0, 0)
    pixels = zlib.compress(zlib.decompress(base64.b64decode(found["data"])), 9)
    chunks = ((b"IHDR", header), (b"PLTE", bytes(found["colours"])), (b"IDAT", pixels), (b"IEND", b""))
    small = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)
    return small if len(small) < len(picture) else picture


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
