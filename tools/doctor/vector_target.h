// The instruction set that the loops of optimizers and norms run with here: what Highway picks at run time.
#pragma once

namespace gannet::doctor {

const char* vector_target();  // "AVX3_ZEN4", "AVX2", "NEON"

}  // namespace gannet::doctor
