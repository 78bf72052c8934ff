// Converts between LibTorch's dtypes and the plugin ABI's. to_dtype() throws Error(kUnsupported) for one that the ABI lacks.
#pragma once

#include <c10/core/ScalarType.h>
#include <gannet/abi.h>
#include <gannet/error.h>

#include <string>

namespace gannet {

inline gannet_dtype to_dtype(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return GANNET_FLOAT32;
    case at::kDouble:
      return GANNET_FLOAT64;
    case at::kHalf:
      return GANNET_FLOAT16;
    case at::kBFloat16:
      return GANNET_BFLOAT16;
    case at::kChar:
      return GANNET_INT8;
    case at::kByte:
      return GANNET_UINT8;
    case at::kShort:
      return GANNET_INT16;
    case at::kInt:
      return GANNET_INT32;
    case at::kLong:
      return GANNET_INT64;
    case at::kBool:
      return GANNET_BOOL;
    default:
      throw Error(ErrorCode::kUnsupported,
                  std::string("tensors of dtype ") + c10::toString(type) + " cannot be handed to a plugin",
                  "convert it to a floating, integer or boolean dtype");
  }
}

inline at::ScalarType to_scalar_type(gannet_dtype dtype) {
  switch (dtype) {
    case GANNET_FLOAT64:
      return at::kDouble;
    case GANNET_FLOAT16:
      return at::kHalf;
    case GANNET_BFLOAT16:
      return at::kBFloat16;
    case GANNET_INT8:
      return at::kChar;
    case GANNET_UINT8:
      return at::kByte;
    case GANNET_INT16:
      return at::kShort;
    case GANNET_INT32:
      return at::kInt;
    case GANNET_INT64:
      return at::kLong;
    case GANNET_BOOL:
      return at::kBool;
    default:
      return at::kFloat;
  }
}

}  // namespace gannet
