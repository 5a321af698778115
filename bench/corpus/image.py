"""Images: colours, filters, geometry."""

from __future__ import annotations

import numpy as np
import scipy.ndimage

from bench.corpus.case import Case, grid, photograph, side


def to_gray(rgb):
    gray = rgb[..., 0] * 0.299 + rgb[..., 1] * 0.587 + rgb[..., 2] * 0.114
    return np.round(gray).astype(np.uint8)


def gamma_correct(image, gamma):
    return (255 * (image / 255.0) ** gamma + 0.5).astype(np.uint8)


def sobel_edges(image):
    gx = image[:-2, 2:] + 2 * image[1:-1, 2:] + image[2:, 2:] - image[:-2, :-2] - 2 * image[1:-1, :-2] - image[2:, :-2]
    gy = image[2:, :-2] + 2 * image[2:, 1:-1] + image[2:, 2:] - image[:-2, :-2] - 2 * image[:-2, 1:-1] - image[:-2, 2:]
    edges = np.zeros_like(image)
    edges[1:-1, 1:-1] = np.hypot(gx, gy)
    return edges


def separable_blur(image, sigma):
    radius = int(3 * sigma)
    taps = np.exp(-(np.arange(-radius, radius + 1) ** 2) / (2 * sigma**2))
    taps /= taps.sum()
    padded = np.pad(image, radius, mode="edge")
    rows = sum(t * padded[:, k : k + image.shape[1]] for k, t in enumerate(taps))
    return sum(t * rows[k : k + image.shape[0]] for k, t in enumerate(taps))


def box_blur(image, radius):
    width = 2 * radius + 1
    total = np.cumsum(np.cumsum(np.pad(image, radius, mode="reflect"), axis=0), axis=1)
    total = np.pad(total, ((1, 0), (1, 0)))
    return (
        total[width:, width:] - total[:-width, width:] - total[width:, :-width] + total[:-width, :-width]
    ) / width**2


def unsharp_mask(image, amount):
    blurred = scipy.ndimage.gaussian_filter(image, 2.0)
    return np.clip(image + amount * (image - blurred), 0.0, 1.0)


def stretch_contrast(image):
    low, high = np.percentile(image, (2, 98))
    if high <= low:
        return image
    return np.clip((image - low) / (high - low), 0, 1)


def equalise_histogram(image):
    counts = np.bincount(image.ravel(), minlength=256)
    cumulative = counts.cumsum()
    low = cumulative[cumulative > 0].min()
    table = np.round((cumulative - low) / (cumulative[-1] - low) * 255).clip(0, 255).astype(np.uint8)
    return table[image]


def otsu_threshold(image):
    counts, edges = np.histogram(image, bins=256, range=(0, 256))
    centres = (edges[:-1] + edges[1:]) / 2
    below, above = np.cumsum(counts), np.cumsum(counts[::-1])[::-1]
    mean_below = np.cumsum(counts * centres) / np.maximum(below, 1)
    mean_above = np.cumsum((counts * centres)[::-1])[::-1] / np.maximum(above, 1)
    between = below[:-1] * above[1:] * (mean_below[:-1] - mean_above[1:]) ** 2
    return image > centres[np.argmax(between)]


def brighten(image, gain, offset):
    image *= gain
    image += offset
    np.clip(image, 0, 1, out=image)


def alpha_blend(front, back, alpha):
    a = alpha[..., None]
    return (front * a + back * (1 - a)).astype(np.uint8)


def rgb_to_hsv(rgb):
    x = rgb.astype(np.float32) / 255
    value, low = x.max(axis=-1), x.min(axis=-1)
    delta = value - low
    safe = np.where(delta == 0, 1, delta)
    hue = np.zeros_like(value)
    red, green = value == x[..., 0], value == x[..., 1]
    hue[red] = ((x[..., 1] - x[..., 2]) / safe)[red]
    hue[~red & green] = (2 + (x[..., 2] - x[..., 0]) / safe)[~red & green]
    hue[~red & ~green] = (4 + (x[..., 0] - x[..., 1]) / safe)[~red & ~green]
    hsv = np.empty_like(x)
    hsv[..., 0] = (hue / 6) % 1
    hsv[..., 1] = np.where(value > 0, delta / np.where(value > 0, value, 1), 0)
    hsv[..., 2] = value
    return hsv


def median_filter(image):
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3))
    return np.median(windows, axis=(2, 3))


def erode(mask):
    result = mask[1:-1, 1:-1].copy()
    for dy in range(3):
        for dx in range(3):
            np.logical_and(result, mask[dy : dy + result.shape[0], dx : dx + result.shape[1]], out=result)
    return result


def draw_boxes(image, boxes, colour):
    for top, left, height, width in boxes:
        image[top : top + height, left : left + width] = colour
        image[top + 1 : top + height - 1, left + 1 : left + width - 1] //= 2


def resize_bilinear(image, height, width):
    y = np.linspace(0, image.shape[0] - 1, height)
    x = np.linspace(0, image.shape[1] - 1, width)
    y0 = np.minimum(y.astype(int), image.shape[0] - 2)
    x0 = np.minimum(x.astype(int), image.shape[1] - 2)
    fy, fx = (y - y0)[:, None], (x - x0)[None, :]
    top = image[y0][:, x0] * (1 - fx) + image[y0][:, x0 + 1] * fx
    bottom = image[y0 + 1][:, x0] * (1 - fx) + image[y0 + 1][:, x0 + 1] * fx
    return top * (1 - fy) + bottom * fy


def vignette(image, strength):
    y, x = np.ogrid[-1 : 1 : image.shape[0] * 1j, -1 : 1 : image.shape[1] * 1j]
    return image * (1 - strength * (x * x + y * y) / 2)


def downsample(image):
    height, width = image.shape
    return image.reshape(height // 2, 2, width // 2, 2).mean(axis=(1, 3))


def largest_region(image, level):
    labels, count = scipy.ndimage.label(image > level)
    if count == 0:
        return np.zeros(image.shape, bool)
    sizes = np.bincount(labels.ravel())
    sizes[0] = 0
    return labels == sizes.argmax()


def turn_and_mirror(image):
    turned = np.rot90(image)
    return np.concatenate([turned, np.fliplr(turned)], axis=1)


def _boxes(random, size):
    extent = side(size)
    corners = random.integers(0, extent // 2, (6, 2))
    boxes = [(int(y), int(x), extent // 3, extent // 4) for y, x in corners]
    return photograph(random, size), boxes, 200


def _layers(random, size):
    return photograph(random, size, 3), photograph(random, size, 3), grid(random, size, "float32")


CASES = [
    Case(to_gray, lambda random, size: (photograph(random, size, 3),), 1_000_000),
    Case(gamma_correct, lambda random, size: (photograph(random, size), 0.8), 1_000_000),
    Case(sobel_edges, lambda random, size: (grid(random, size, "float32"),), 1_000_000),
    Case(separable_blur, lambda random, size: (grid(random, size, "float32"), 2.0), 500_000),
    Case(box_blur, lambda random, size: (grid(random, size), 4), 1_000_000),
    Case(unsharp_mask, lambda random, size: (grid(random, size), 0.7), 500_000),
    Case(stretch_contrast, lambda random, size: (grid(random, size),), 500_000),
    Case(equalise_histogram, lambda random, size: (photograph(random, size),), 1_000_000),
    Case(otsu_threshold, lambda random, size: (photograph(random, size),), 300_000),
    Case(brighten, lambda random, size: (grid(random, size, "float32"), 1.1, 0.02), 2_000_000),
    Case(alpha_blend, _layers, 500_000),
    Case(rgb_to_hsv, lambda random, size: (photograph(random, size, 3),), 300_000),
    Case(median_filter, lambda random, size: (grid(random, size, "float32"),), 60_000),
    Case(erode, lambda random, size: (grid(random, size) > 0.1,), 1_000_000),
    Case(draw_boxes, _boxes, 1_000_000),
    Case(resize_bilinear, lambda random, size: (grid(random, size), side(size) // 2, side(size) + 5), 300_000),
    Case(vignette, lambda random, size: (grid(random, size), 0.4), 1_000_000),
    Case(downsample, lambda random, size: (grid(random, size, "float32"),), 4_000_000),
    Case(largest_region, lambda random, size: (grid(random, size), 0.4), 200_000),
    Case(turn_and_mirror, lambda random, size: (photograph(random, size),), 1_000_000),
]
