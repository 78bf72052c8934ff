/// The class of a module, even if a program names its holder. Used by other headers.
#pragma once

namespace gannet::detail {

// The module type inside a TORCH_MODULE holder; for any other type, that type itself.
template <class Model>
struct ModuleOf {
  using type = Model;
};
template <class Holder>
  requires requires { typename Holder::ContainedType; }
struct ModuleOf<Holder> {
  using type = typename Holder::ContainedType;
};

}  // namespace gannet::detail
