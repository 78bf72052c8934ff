// How AdamW8bit keeps a moment in a byte: a code for each element, and for each block of kBlock elements the largest magnitude in
// it, in fp32. 2 + 8/256 bytes per element for both moments.
//
//   first moment:    m = c |c| / 127^2 * largest,  c in [-127, 127]      steps of 1.6% of the largest next to it, 6e-5 the
//   smallest second moment:   v = (c / 255)^4 * largest,    c in [0, 255]         likewise 1.6%, and 2.4e-10
//
// The powers give small numbers the fine steps that a linear code lacks (Dettmers et al. 2022, "8-bit Optimizers via Block-wise
// Quantization", have a table for that), and are computed by a few vector instructions. A second moment above 0 never becomes 0:
// it is a divisor.
#pragma once

#include <cstdint>

#include "optimizers/device/both.h"

namespace gannet::rules {

inline constexpr uint64_t kBlock = 256;
inline constexpr float kFirstCodes = 127, kSecondCodes = 255;

// What a code's power is multiplied by: of a block's largest magnitude. And the inverse of the latter, for the way back.
inline constexpr float kFirstPerCode = 1 / (kFirstCodes * kFirstCodes);
inline constexpr float kSecondPerCode = 1 / (kSecondCodes * kSecondCodes * kSecondCodes * kSecondCodes);
GANNET_BOTH float first_unit(float largest) { return largest * kFirstPerCode; }
GANNET_BOTH float second_unit(float largest) { return largest * kSecondPerCode; }
GANNET_BOTH float inverse_of(float largest) { return largest > 0 ? 1 / largest : 0; }

}  // namespace gannet::rules
