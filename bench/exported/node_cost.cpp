// What an exported graph costs besides its operators: instructions, heap allocations and time per node.
//
//   node_cost [FOLDER ROWS LENGTH]
//   instructions:
//   valgrind --tool=callgrind --collect-atstart=no --toggle-collect='measured_*' --callgrind-out-file=cost.out node_cost
//   callgrind_annotate --inclusive=yes --threshold=100 cost.out | grep measured_
//
// Graphs of 100 and of 200 additions of four numbers, with gradients, against boxed calls of the same operator and against
// at::add. The difference of the two lengths is the cost of 100 nodes. With a FOLDER of exported_bench.py it counts the
// allocations of one forward pass of ROWS x LENGTH tokens, and which of them Gannet's library for graphs makes itself.
#include <ATen/Parallel.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <gannet/exported.h>
#include <gannet/pretrained.h>
#include <link.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "common/allocations.h"
#include "program.h"
#include "run.h"

namespace {

// The calls of operator new whose caller is in libgannet_exported, inlined code of LibTorch's headers included.
thread_local uint64_t own_allocations = 0;
thread_local bool is_watching = false;

uintptr_t own_begin = 0, own_end = 0;  // the library's code

void find_library() {
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void*) {
        if (!std::strstr(info->dlpi_name, "libgannet_exported")) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i)
          if (const auto& part = info->dlpi_phdr[i]; part.p_type == PT_LOAD && (part.p_flags & PF_X)) {
            own_begin = info->dlpi_addr + part.p_vaddr;
            own_end = own_begin + part.p_memsz;
          }
        return 1;
      },
      nullptr);
}

bool is_own(const void* caller) {
  const auto address = reinterpret_cast<uintptr_t>(caller);
  return own_begin <= address && address < own_end;
}

}  // namespace

void* operator new(size_t bytes) {
  if (is_watching && is_own(__builtin_return_address(0))) ++own_allocations;
  void* memory = std::malloc(bytes);
  if (!memory) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace {

using c10::IValue;
using gannet::exported::Program;

at::Tensor x;
std::unique_ptr<const Program> graph_of_100, graph_of_200;

std::unique_ptr<const Program> additions(int count) {
  std::string nodes, last = "x";
  for (int i = 0; i < count; ++i) {
    const std::string name = "add_" + std::to_string(i);
    nodes += R"({"name": ")" + name + R"(", "op": "aten.add.Tensor", "args": [{"ref": ")" + last + R"("}, {"ref": "x"}]},)";
    last = name;
  }
  const std::string text =
      R"({"format": 1, "exported_by": {"gannet_export": "0", "torch": "0"}, "mode": "train", "dtype": "fp32", "symbols": [],
 "inputs": [{"name": "x", "dtype": "float32", "shape": [4]}], "relations": [], "placeholders": [["input", "x"]],
 "graphs": [{"name": "main", "inputs": ["x"], "nodes": [)" +
      nodes + R"({"name": "total", "op": "aten.sum.default", "args": [{"ref": ")" + last +
      R"("}]}], "outputs": [{"ref": "total"}]}]})";
  return std::make_unique<const Program>(gannet::exported::read_graph(text, "additions"), std::map<std::string, at::Tensor>());
}

void run_graph(const Program& program) { gannet::exported::run(program, {x}, at::kCPU); }

void run_boxed(int count) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::add", "Tensor");
  static std::vector<IValue> stack;
  at::Tensor value = x;
  for (int i = 0; i < count; ++i) {
    stack.clear();
    stack.emplace_back(std::move(value));
    stack.emplace_back(x);
    stack.emplace_back(1);
    op.callBoxed(&stack);
    value = std::move(stack[0]).toTensor();
  }
  value.sum();
}

void run_direct(int count) {
  at::Tensor value = x;
  for (int i = 0; i < count; ++i) value = at::add(value, x);
  value.sum();
}

}  // namespace

// Callgrind finds them by these names.
extern "C" {
__attribute__((noinline)) void measured_graph_100() { run_graph(*graph_of_100); }
__attribute__((noinline)) void measured_graph_200() { run_graph(*graph_of_200); }
__attribute__((noinline)) void measured_boxed_100() { run_boxed(100); }
__attribute__((noinline)) void measured_boxed_200() { run_boxed(200); }
__attribute__((noinline)) void measured_direct_100() { run_direct(100); }
__attribute__((noinline)) void measured_direct_200() { run_direct(200); }
}

namespace {

struct Cost {
  double ns = 0;
  uint64_t allocations = 0, own = 0;
};

Cost cost_of(void (*pass)()) {
  Cost cost;
  std::vector<double> times;
  for (int i = 0; i < 101; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    pass();
    times.push_back(std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + 50, times.end());
  cost.ns = times[50];
  const uint64_t before = gannet::bench::allocations(), own_before = own_allocations;
  is_watching = true;
  pass();
  is_watching = false;
  cost.allocations = gannet::bench::allocations() - before;
  cost.own = own_allocations - own_before;
  return cost;
}

void print_node(const char* name, void (*of_100)(), void (*of_200)()) {
  const Cost a = cost_of(of_100), b = cost_of(of_200);
  std::printf(
      "{\"figure\": \"node\", \"by\": \"%s\", \"ns\": %.1f, \"allocations\": %.2f, \"own\": %.2f, \"own_of_a_pass\": %llu}\n",
      name, (b.ns - a.ns) / 100, static_cast<double>(b.allocations - a.allocations) / 100,
      static_cast<double>(b.own - a.own) / 100, static_cast<unsigned long long>(b.own));
}

void print_forward(const char* folder, int64_t rows, int64_t length) {
  const auto model = gannet::from_pretrained<gannet::ExportedModule>(folder, {});
  model->train();
  int64_t vocabulary = 0;
  for (const auto& one : model->config().parameters)
    if (one.name == "lm_head.weight" || one.name == "transformer.wte.weight") vocabulary = one.shape[0];
  const at::Tensor tokens = at::arange(rows * length).remainder(vocabulary).view({rows, length});
  const gannet::NamedBatch batch{{"input_ids", tokens}, {"labels", tokens}};
  for (int i = 0; i < 5; ++i) model->forward(batch);
  const uint64_t before = gannet::bench::allocations(), own_before = own_allocations;
  is_watching = true;
  model->forward(batch);
  is_watching = false;
  std::printf("{\"figure\": \"forward\", \"nodes\": %zu, \"allocations\": %llu, \"own\": %llu}\n",
              model->config().graphs()[0].nodes, static_cast<unsigned long long>(gannet::bench::allocations() - before),
              static_cast<unsigned long long>(own_allocations - own_before));
}

}  // namespace

int main(int count, char** arguments) {
  at::set_num_threads(1);
  find_library();
  x = at::ones({4}).requires_grad_();
  graph_of_100 = additions(100);
  graph_of_200 = additions(200);
  print_node("graph", measured_graph_100, measured_graph_200);
  print_node("boxed", measured_boxed_100, measured_boxed_200);
  print_node("direct", measured_direct_100, measured_direct_200);
  if (count == 4) print_forward(arguments[1], std::stoll(arguments[2]), std::stoll(arguments[3]));
}
