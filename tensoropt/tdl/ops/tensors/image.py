"""Images: batch, height, width, channels."""

from __future__ import annotations

from typing import Any

from tensoropt.tdl.expression import Expression, Literal, Opaque, Operand
from tensoropt.tdl.ops.subscripts import WHOLE, batched
from tensoropt.tdl.registry import describe
from tensoropt.tensor_spec import TensorSpec

__all__: list[str] = []

Outputs = tuple[TensorSpec, ...]


@describe("ResizeArea", "ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor")
def resize(images: Operand, _size: Operand) -> Any:
    return lambda b, y, x, c: Opaque("Resize")(images[b, :, :, c])[y, x]


@describe("ResizeNearestNeighborGrad")
def resize_gradient_of_size(gradient: Operand, _size: Operand) -> Any:
    return lambda b, y, x, c: Opaque("ResizeGrad")(gradient[b, :, :, c])[y, x]


@describe("ResizeBicubicGrad", "ResizeBilinearGrad")
def resize_gradient(gradient: Operand, images: Operand) -> Any:
    """Only the shape of the images is read."""
    return lambda b, y, x, c: Opaque("ResizeGrad")(gradient[b, :, :, c], images[b, :, :, c])[y, x]


@describe("ScaleAndTranslate")
def scale_and_translate(
    images: Operand, _size: Operand, scale: Operand, translation: Operand
) -> Any:
    return lambda b, y, x, c: Opaque("ScaleAndTranslate")(
        images[b, :, :, c], scale[:], translation[:]
    )[y, x]


@describe("ImageProjectiveTransformV2", "ImageProjectiveTransformV3")
def projective_transform(images: Operand, transforms: Operand, *_options: Operand) -> Any:
    """One transform for all images, or one for each."""
    shared = transforms.shape[0] == 1

    def element(b: Expression, y: Expression, x: Expression, c: Expression) -> Expression:
        own = transforms[Literal(0) if shared else b, WHOLE]
        return Opaque("Transform")(images[b, :, :, c], own)[y, x]

    return element


@describe("CropAndResize")
def crop_and_resize(images: Operand, boxes: Operand, of_image: Operand, _size: Operand) -> Any:
    """A box names the image that it is cut from; all images are read."""
    return lambda n, y, x, c: Opaque("Crop")(images[:, :, :, c], boxes[n, :], of_image[n])[y, x]


@describe("ExtractImagePatches", "ExtractVolumePatches")
def extract_patches(images: Operand, *, outputs: Outputs) -> Any:
    own = images.rank - 1
    return batched("Patches", [(images, own)], outputs, [own])


@describe("DrawBoundingBoxes", "DrawBoundingBoxesV2")
def draw_bounding_boxes(images: Operand, boxes: Operand, *_colours: Operand) -> Any:
    return lambda b, y, x, c: Opaque("Draw")(images[b, :, :, :], boxes[b, :, :])[y, x, c]


@describe("AdjustContrastv2")
def adjust_contrast(images: Operand, factor: Operand) -> Any:
    """Contrast is relative to the mean of an image's channel."""

    def element(*i: Expression) -> Expression:
        *b, y, x, c = i
        return Opaque("Contrast")(images.at(*b, WHOLE, WHOLE, c), factor[()])[y, x]

    return element


@describe("AdjustHue", "AdjustSaturation")
def adjust_colour(images: Operand, amount: Operand) -> Any:
    return lambda *i: Opaque("Colour")(images.at(*i[:-1], WHOLE), amount[()])[i[-1]]


@describe("HSVToRGB", "RGBToHSV")
def colour_space(images: Operand) -> Any:
    return lambda *i: Opaque("Colour")(images.at(*i[:-1], WHOLE))[i[-1]]
