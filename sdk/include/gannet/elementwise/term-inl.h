// One element's contribution to a sum, as a product that is computed in double; terms() sets it.
// Included in each target's namespace, so there is no include guard.
template <class V>
struct Term {
  V a, b;
};
template <class V>
GANNET_DEVICE Term<V> product(V a, V b) {
  return {a, b};
}
