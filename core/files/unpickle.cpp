// The stack machine of a pickle. Python's pickletools describes the instructions and their
// operands, for protocols 0 to 5.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <vector>

#include "base/format.h"
#include "files/pickle.h"
#include "files/pickle_builder.h"
#include "files/pickle_constants.h"

namespace gannet::files {
namespace {

class Unpickler {
 public:
  Unpickler(Cursor& cursor, const PickleLimits& limits) : in_(cursor), make_(cursor, limits), constants_(cursor, make_) {}

  Pickle run() {
    while (true) {
      const auto instruction = static_cast<unsigned char>(in_.take(1, "an instruction")[0]);
      if (instruction == '.') break;
      if (PickleObject* constant = constants_.read(instruction))
        push(constant);
      else if (!container(instruction) && !object(instruction) && !remembered(instruction))
        unknown(instruction);
    }
    if (stack_.size() != 1 || !marks_.empty())
      make_.corrupt(formatted("the pickle ends with {} values, not with one", stack_.size()));
    return std::move(make_).finish(*stack_[0]);
  }

 private:
  void push(PickleObject* value) {
    make_.grow(stack_, 1);
    stack_.push_back(value);
  }
  // The values above the last mark belong to a container. No pickler reaches below the mark.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  PickleObject* pop() {
    if (stack_.size() <= floor()) make_.corrupt("an instruction wants a value where there is none");
    PickleObject* value = stack_.back();
    stack_.pop_back();
    return value;
  }
  PickleObject& top() {
    if (stack_.size() <= floor()) make_.corrupt("an instruction wants a value where there is none");
    return *stack_.back();
  }
  size_t pop_mark() {
    if (marks_.empty()) make_.corrupt("an instruction wants a mark where there is none");
    const size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }
  // Moves the values at index `begin` and above into `into`.
  void take_items(PickleObject& into, size_t begin) {
    for (size_t i = begin; i < stack_.size(); ++i) make_.add_item(into, *stack_[i]);
    stack_.resize(begin);
  }
  void take_entries(PickleObject& into, size_t begin) {
    if ((stack_.size() - begin) % 2 != 0) make_.corrupt("a dict has a key without a value");
    for (size_t i = begin; i < stack_.size(); i += 2) make_.add_entry(into, *stack_[i], *stack_[i + 1]);
    stack_.resize(begin);
  }
  void push_tuple(size_t count) {
    if (stack_.size() - floor() < count) make_.corrupt(formatted("a tuple of {} has fewer values", count));
    PickleObject* tuple = make_.make(Object::Kind::kTuple);
    take_items(*tuple, stack_.size() - count);
    push(tuple);
  }
  void push_of_mark(Object::Kind kind) {
    PickleObject* made = make_.make(kind);
    const size_t mark = pop_mark();
    if (kind == Object::Kind::kDict)
      take_entries(*made, mark);
    else
      take_items(*made, mark);
    push(made);
  }
  PickleObject& below(size_t begin, std::initializer_list<Object::Kind> kinds) {
    if (begin == 0 || begin - 1 < floor()) make_.corrupt("values are added to a container where there is none");
    PickleObject& into = *stack_[begin - 1];
    if (std::find(kinds.begin(), kinds.end(), into.kind) == kinds.end())
      make_.corrupt(std::string("values are added to ") + into.kind_name());
    return into;
  }

  bool container(unsigned char instruction) { return makes_container(instruction) || fills_container(instruction); }

  // Handles ( MARK, ] EMPTY_LIST, } EMPTY_DICT, 0x8f EMPTY_SET, ) EMPTY_TUPLE, 0x85 to 0x87 TUPLE1
  // to TUPLE3, t TUPLE, l LIST, d DICT, 0x91 FROZENSET.
  bool makes_container(unsigned char instruction) {
    switch (instruction) {
      case '(':
        make_.grow(marks_, 1);
        marks_.push_back(stack_.size());
        return true;
      case ']':
        push(make_.make(Object::Kind::kList));
        return true;
      case '}':
        push(make_.make(Object::Kind::kDict));
        return true;
      case 0x8f:
        push(make_.make(Object::Kind::kSet));
        return true;
      case ')':
        push_tuple(0);
        return true;
      case 0x85:
        push_tuple(1);
        return true;
      case 0x86:
        push_tuple(2);
        return true;
      case 0x87:
        push_tuple(3);
        return true;
      case 't':
        push_of_mark(Object::Kind::kTuple);
        return true;
      case 'l':
        push_of_mark(Object::Kind::kList);
        return true;
      case 'd':
        push_of_mark(Object::Kind::kDict);
        return true;
      case 0x91:
        push_of_mark(Object::Kind::kSet);
        return true;
      default:
        return false;
    }
  }

  // Handles a APPEND, e APPENDS, 0x90 ADDITEMS, s SETITEM, u SETITEMS.
  bool fills_container(unsigned char instruction) {
    switch (instruction) {
      case 'a': {
        PickleObject* item = pop();
        make_.add_item(below(stack_.size(), {Object::Kind::kList, Object::Kind::kRecord}), *item);
        return true;
      }
      case 'e': {
        const size_t mark = pop_mark();
        take_items(below(mark, {Object::Kind::kList, Object::Kind::kRecord}), mark);
        return true;
      }
      case 0x90: {
        const size_t mark = pop_mark();
        take_items(below(mark, {Object::Kind::kSet}), mark);
        return true;
      }
      case 's': {
        PickleObject* value = pop();
        PickleObject* key = pop();
        make_.add_entry(below(stack_.size(), {Object::Kind::kDict, Object::Kind::kRecord}), *key, *value);
        return true;
      }
      case 'u': {
        const size_t mark = pop_mark();
        take_entries(below(mark, {Object::Kind::kDict, Object::Kind::kRecord}), mark);
        return true;
      }
      default:
        return false;
    }
  }

  void push_class(std::string_view module, std::string_view name) {
    std::string full = class_name(module, name);
    const KnownClass known = class_of(full);
    PickleObject* made = make_.make(Object::Kind::kRecord, std::move(full));
    made->as_class = known;
    push(made);
  }

  // Sets a record's state: a dict of attributes, a pair of such dicts, or another value, which is
  // added as an item. The state of a tensor or dict is dropped; objects of other kinds have none.
  void set_state(PickleObject& object, PickleObject& state) {
    if (object.as_class) make_.corrupt(formatted("the class {} is changed", shown(object.text)));
    if (object.kind == Object::Kind::kTensor || object.kind == Object::Kind::kDict) return;
    if (object.kind != Object::Kind::kRecord) make_.corrupt(std::string("a state is given to ") + object.kind_name());
    if (state.kind == Object::Kind::kDict) return make_.add_entries_of(object, state);
    if (state.kind == Object::Kind::kTuple && state.items.size() == 2 && is_attributes(*state.items[0]) &&
        is_attributes(*state.items[1])) {
      for (const ObjectRef& part : state.items)
        if (part->kind == Object::Kind::kDict) make_.add_entries_of(object, static_cast<const PickleObject&>(*part));
      return;
    }
    make_.add_item(object, state);
  }
  static bool is_attributes(const Object& object) {
    return object.kind == Object::Kind::kDict || object.kind == Object::Kind::kNone;
  }

  // Handles c GLOBAL, 0x93 STACK_GLOBAL, R REDUCE, 0x81 NEWOBJ, 0x92 NEWOBJ_EX, b BUILD, Q
  // BINPERSID.
  bool object(unsigned char instruction) {
    switch (instruction) {
      case 'c': {
        const std::string module(in_.line("a module's name"));
        push_class(module, in_.line("a class's name"));
        return true;
      }
      case 0x93: {
        const PickleObject *name = pop(), *module = pop();
        if (name->kind != Object::Kind::kString || module->kind != Object::Kind::kString)
          make_.corrupt("the name of a class should be a text");
        push_class(module->text, name->text);
        return true;
      }
      case 'R':
      case 0x81: {
        const PickleObject* arguments = pop();
        const PickleObject* callee = pop();
        push(make_.call(*callee, *arguments));
        return true;
      }
      case 0x92: {
        const PickleObject *keywords = pop(), *arguments = pop(), *callee = pop();
        PickleObject* made = make_.call(*callee, *arguments);
        make_.add_entries_of(*made, *keywords);
        push(made);
        return true;
      }
      case 'b': {
        PickleObject* state = pop();
        set_state(top(), *state);
        return true;
      }
      case 'Q': {
        const PickleObject* id = pop();
        push(make_.storage(*id));
        return true;
      }
      default:
        return false;
    }
  }

  void remember(uint64_t index) {
    // A pickler numbers memoized values from 0, so a number cannot exceed the number of pickle
    // bytes read so far.
    if (index > in_.offset()) make_.corrupt(formatted("a value is memoized as number {}, beyond the number of values", index));
    PickleObject* value = &top();
    if (index >= memo_.size()) {
      make_.grow(memo_, index + 1 - memo_.size());
      memo_.resize(index + 1);
    }
    memo_[index] = value;
  }
  void recall(uint64_t index) {
    if (index >= memo_.size() || !memo_[index])
      make_.corrupt(formatted("the remembered value {} is wanted, and there is none", index));
    push(memo_[index]);
  }
  uint64_t index_of(std::string_view digits) {
    uint64_t index = 0;
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (code != std::errc() || end != digits.data() + digits.size())
      make_.corrupt(formatted("a number of a remembered value should be here, found {}", shown(digits)));
    return index;
  }

  // Handles 0x80 PROTO, 0x95 FRAME, 0 POP, 1 POP_MARK, 2 DUP, p PUT, q BINPUT, r LONG_BINPUT, 0x94
  // MEMOIZE, g GET, h BINGET, j LONG_BINGET.
  bool remembered(unsigned char instruction) {
    switch (instruction) {
      case 0x80:
        if (const int protocol = in_.number<uint8_t>("a protocol"); protocol > 5)
          make_.unsupported(formatted("the pickle has protocol {}; up to 5 are read", protocol),
                            "save it with pickle_protocol=2");
        return true;
      // A frame is only a buffering hint: its length is checked, and its content is read as if
      // there were no frame.
      case 0x95:
        in_.need(in_.number<uint64_t>("a frame"), "a frame");
        return true;
      case '0':
        pop();
        return true;
      case '1':
        stack_.resize(pop_mark());
        return true;
      case '2':
        push(&top());
        return true;
      case 'p':
        remember(index_of(in_.line("a number")));
        return true;
      case 'q':
        remember(in_.number<uint8_t>("a number"));
        return true;
      case 'r':
        remember(in_.number<uint32_t>("a number"));
        return true;
      case 0x94:
        remember(memo_.size());
        return true;
      case 'g':
        recall(index_of(in_.line("a number")));
        return true;
      case 'h':
        recall(in_.number<uint8_t>("a number"));
        return true;
      case 'j':
        recall(in_.number<uint32_t>("a number"));
        return true;
      default:
        return false;
    }
  }

  // Refuses P PERSID, i INST, o OBJ, 0x82 EXT1, 0x83 EXT2, 0x84 EXT4, 0x97 NEXT_BUFFER, 0x98
  // READONLY_BUFFER.
  [[noreturn]] void unknown(unsigned char instruction) {
    char name[8];
    std::snprintf(name, sizeof(name), "0x%02x", instruction);
    switch (instruction) {
      case 'P':
      case 'i':
      case 'o':
      case 0x82:
      case 0x83:
      case 0x84:
      case 0x97:
      case 0x98:
        make_.unsupported(formatted("the pickle has the instruction {}, which torch.save does not write", name),
                          "save it with torch.save and its default protocol");
      default:
        make_.corrupt(formatted("no pickle has the instruction {}", name));
    }
  }

  Cursor& in_;
  PickleBuilder make_;
  PickleConstants constants_;
  // Both point at objects that make_ owns. memo_ is null at indices that no PUT has set.
  std::vector<PickleObject*> stack_, memo_;
  // The height of stack_ at each open MARK, ascending.
  std::vector<size_t> marks_;
};

}  // namespace

Pickle unpickle(Cursor& cursor, const PickleLimits& limits) { return Unpickler(cursor, limits).run(); }

}  // namespace gannet::files
