// The sizes of one convolution as kernels take them. Host code may include this file.
#pragma once

namespace heddle::cuda::device {

// x (batch,in_h,in_w,in_c), w (out_c,kernel_h,kernel_w,group_in_c), y (batch,out_h,out_w,out_c).
struct ConvGeometry {
  int batch, in_h, in_w, in_c, out_h, out_w, out_c, kernel_h, kernel_w;
  int stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
  int groups, group_in_c, group_out_c;
};

}  // namespace heddle::cuda::device
