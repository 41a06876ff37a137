// Images with an alpha channel as images without one.
#pragma once

#include "datasets/image_file.h"

namespace heddle::datasets {

// Grey and alpha becomes grey, RGB and alpha RGB: laid over black, value * alpha / 255 rounded to the nearest. An image
// without alpha stays as it is. Throws: InvalidArgument unless there are 1 to 4 channels.
Image without_alpha(Image image);

}  // namespace heddle::datasets
