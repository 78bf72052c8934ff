// The stack machine of a pickle. Instructions and their operands: Python's pickletools, protocols 0 to 5.
#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "exchange/pickle.h"
#include "exchange/pickle_maker.h"
#include "exchange/pickle_text.h"

namespace gannet::exchange {
namespace {

using Kind = Object::Kind;

class Unpickler {
 public:
  Unpickler(Cursor& cursor, const PickleLimits& limits) : in_(cursor), make_(cursor, limits) {}

  Pickle run() {
    while (true) {
      const auto instruction = static_cast<unsigned char>(in_.take(1, "an instruction")[0]);
      if (instruction == '.') break;
      if (!constant(instruction) && !container(instruction) && !object(instruction) && !remembered(instruction))
        unknown(instruction);
    }
    if (stack_.size() != 1 || !marks_.empty())
      make_.corrupt("the pickle ends with " + std::to_string(stack_.size()) + " values, not with one");
    return std::move(make_).finish(*stack_[0]);
  }

 private:
  void push(Built* value) {
    make_.grow(stack_, 1);
    stack_.push_back(value);
  }
  // The values above the last mark are a container's: what reaches below it is no pickler's doing.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Built* pop() {
    if (stack_.size() <= floor()) make_.corrupt("an instruction wants a value where there is none");
    Built* value = stack_.back();
    stack_.pop_back();
    return value;
  }
  Built& top() {
    if (stack_.size() <= floor()) make_.corrupt("an instruction wants a value where there is none");
    return *stack_.back();
  }
  size_t pop_mark() {
    if (marks_.empty()) make_.corrupt("an instruction wants a mark where there is none");
    const size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }
  std::string text(uint64_t count, const char* what) {
    in_.need(count, what);
    make_.charge(count);
    return in_.text(count, what);
  }
  template <class Length>
  uint64_t length(const char* what) {
    const auto count = in_.number<Length>(what);
    if (std::is_signed_v<Length> && count < 0) make_.corrupt(std::string(what) + " has a negative length");
    return static_cast<uint64_t>(count);
  }
  template <class Length>
  void push_text(Kind kind, const char* what) {
    push(make_.make(kind, text(length<Length>(what), what)));
  }

  // Two's complement, little-endian. What 64 bits do not hold is kept as its bytes.
  void push_long(uint64_t count) {
    std::string bytes = text(count, "an integer");
    const char fill = !bytes.empty() && (bytes.back() & 0x80) ? '\xff' : '\0';
    if (bytes.size() <= sizeof(int64_t)) {
      bytes.resize(sizeof(int64_t), fill);
      int64_t value;
      std::memcpy(&value, bytes.data(), sizeof(value));
      return push(make_.integer(value));
    }
    Built* record = make_.make(Kind::kRecord, "builtins.int");
    make_.add_item(*record, *make_.make(Kind::kBytes, std::move(bytes)));
    push(record);
  }

  void push_decimal(std::string_view digits) {
    if (digits == "00" || digits == "01") return push(make_.boolean(digits == "01"));
    if (digits.ends_with('L')) digits.remove_suffix(1);
    int64_t value = 0;
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (code == std::errc::result_out_of_range)
      make_.unsupported("the integer " + shown(digits) + " has more than 64 bits", "save the file with a newer pickle protocol");
    if (code != std::errc() || end != digits.data() + digits.size())
      make_.corrupt("an integer should be here, found " + shown(digits));
    push(make_.integer(value));
  }

  void push_number(double value) {
    Built* number = make_.make(Kind::kNumber);
    number->number = value;
    push(number);
  }

  void push_number(std::string_view digits) {
    const std::string copy(digits.substr(0, 64));
    char* end = nullptr;
    const double value = std::strtod(copy.c_str(), &end);
    if (copy.empty() || digits.size() > 64 || end != copy.c_str() + copy.size())
      make_.corrupt("a number should be here, found " + shown(digits));
    push_number(value);
  }

  bool constant(unsigned char instruction) {
    switch (instruction) {
      case 'N':
        push(make_.none());
        return true;
      case 0x88:
        push(make_.boolean(true));
        return true;
      case 0x89:
        push(make_.boolean(false));
        return true;
      case 'I':
        push_decimal(in_.line("an integer"));
        return true;
      case 'L':
        push_decimal(in_.line("an integer"));
        return true;
      case 'J':
        push(make_.integer(in_.number<int32_t>("an integer")));
        return true;
      case 'K':
        push(make_.integer(in_.number<uint8_t>("an integer")));
        return true;
      case 'M':
        push(make_.integer(in_.number<uint16_t>("an integer")));
        return true;
      case 0x8a:
        push_long(length<uint8_t>("an integer"));
        return true;
      case 0x8b:
        push_long(length<int32_t>("an integer"));
        return true;
      case 'F':
        push_number(in_.line("a number"));
        return true;
      case 'G':
        push_number(std::bit_cast<double>(__builtin_bswap64(in_.number<uint64_t>("a number"))));
        return true;
      case 'S':
        push_line(&unquoted);
        return true;
      case 'V':
        push_line(&unescaped);
        return true;
      case 'T':
        push_text<int32_t>(Kind::kString, "a string");
        return true;
      case 'U':
        push_text<uint8_t>(Kind::kString, "a string");
        return true;
      case 'X':
        push_text<uint32_t>(Kind::kString, "a string");
        return true;
      case 0x8c:
        push_text<uint8_t>(Kind::kString, "a string");
        return true;
      case 0x8d:
        push_text<uint64_t>(Kind::kString, "a string");
        return true;
      case 'B':
        push_text<uint32_t>(Kind::kBytes, "bytes");
        return true;
      case 'C':
        push_text<uint8_t>(Kind::kBytes, "bytes");
        return true;
      case 0x8e:
      case 0x96:
        push_text<uint64_t>(Kind::kBytes, "bytes");
        return true;
      default:
        return false;
    }
  }

  void push_line(std::optional<std::string> (*decode)(std::string_view)) {
    const std::string_view line = in_.line("a string");
    make_.charge(4 * line.size());
    std::optional<std::string> decoded = decode(line);
    if (!decoded) make_.corrupt("a string should be here, found " + shown(line));
    push(make_.make(Kind::kString, std::move(*decoded)));
  }

  // The values above the last mark, put into `into`.
  void take_items(Built& into, size_t begin) {
    for (size_t i = begin; i < stack_.size(); ++i) make_.add_item(into, *stack_[i]);
    stack_.resize(begin);
  }
  void take_entries(Built& into, size_t begin) {
    if ((stack_.size() - begin) % 2 != 0) make_.corrupt("a dict has a key without a value");
    for (size_t i = begin; i < stack_.size(); i += 2) make_.add_entry(into, *stack_[i], *stack_[i + 1]);
    stack_.resize(begin);
  }
  void push_tuple(size_t count) {
    if (stack_.size() - floor() < count) make_.corrupt("a tuple of " + std::to_string(count) + " has fewer values");
    Built* tuple = make_.make(Kind::kTuple);
    take_items(*tuple, stack_.size() - count);
    push(tuple);
  }
  void push_of_mark(Kind kind) {
    Built* made = make_.make(kind);
    const size_t mark = pop_mark();
    if (kind == Kind::kDict)
      take_entries(*made, mark);
    else
      take_items(*made, mark);
    push(made);
  }
  Built& below(size_t begin, std::initializer_list<Kind> kinds) {
    if (begin == 0 || begin - 1 < floor()) make_.corrupt("values are added to a container where there is none");
    Built& into = *stack_[begin - 1];
    if (std::find(kinds.begin(), kinds.end(), into.kind) == kinds.end())
      make_.corrupt(std::string("values are added to ") + into.kind_name());
    return into;
  }

  bool container(unsigned char instruction) {
    switch (instruction) {
      case '(':
        make_.grow(marks_, 1);
        marks_.push_back(stack_.size());
        return true;
      case ']':
        push(make_.make(Kind::kList));
        return true;
      case '}':
        push(make_.make(Kind::kDict));
        return true;
      case 0x8f:
        push(make_.make(Kind::kSet));
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
        push_of_mark(Kind::kTuple);
        return true;
      case 'l':
        push_of_mark(Kind::kList);
        return true;
      case 'd':
        push_of_mark(Kind::kDict);
        return true;
      case 0x91:
        push_of_mark(Kind::kSet);
        return true;
      case 'a': {
        Built* item = pop();
        make_.add_item(below(stack_.size(), {Kind::kList, Kind::kRecord}), *item);
        return true;
      }
      case 'e': {
        const size_t mark = pop_mark();
        take_items(below(mark, {Kind::kList, Kind::kRecord}), mark);
        return true;
      }
      case 0x90: {
        const size_t mark = pop_mark();
        take_items(below(mark, {Kind::kSet}), mark);
        return true;
      }
      case 's': {
        Built* value = pop();
        Built* key = pop();
        make_.add_entry(below(stack_.size(), {Kind::kDict, Kind::kRecord}), *key, *value);
        return true;
      }
      case 'u': {
        const size_t mark = pop_mark();
        take_entries(below(mark, {Kind::kDict, Kind::kRecord}), mark);
        return true;
      }
      default:
        return false;
    }
  }

  void push_class(std::string_view module, std::string_view name) {
    std::string full = class_name(module, name), refusal;
    const std::optional<KnownClass> known = known_class(full, refusal);
    if (!known)
      make_.unsupported(
          "the file holds an object of " + shown(full) +
              ", which is not read: " + (refusal.empty() ? "only tensors, plain data and DeepSpeed's own records are" : refusal),
          "nothing of the file was run; in a program that trusts it, save what is needed as a dict of tensors and numbers");
    Built* made = make_.make(Kind::kRecord, std::move(full));
    made->as_class = *known;
    push(made);
  }

  // An object's state: a dict of attributes, or a pair of such dicts. What else has one (a tensor, a dict) is whole without it.
  void set_state(Built& object, Built& state) {
    if (object.as_class) make_.corrupt("the class " + shown(object.text) + " is changed");
    if (object.kind == Kind::kTensor || object.kind == Kind::kDict) return;
    if (object.kind != Kind::kRecord) make_.corrupt(std::string("a state is given to ") + object.kind_name());
    if (state.kind == Kind::kDict) return make_.add_entries_of(object, state);
    if (state.kind == Kind::kTuple && state.items.size() == 2 && is_attributes(*state.items[0]) &&
        is_attributes(*state.items[1])) {
      for (const ObjectRef& part : state.items)
        if (part->kind == Kind::kDict) make_.add_entries_of(object, static_cast<const Built&>(*part));
      return;
    }
    make_.add_item(object, state);
  }
  static bool is_attributes(const Object& object) { return object.kind == Kind::kDict || object.kind == Kind::kNone; }

  bool object(unsigned char instruction) {
    switch (instruction) {
      case 'c': {
        const std::string module(in_.line("a module's name"));
        push_class(module, in_.line("a class's name"));
        return true;
      }
      case 0x93: {
        const Built *name = pop(), *module = pop();
        if (name->kind != Kind::kString || module->kind != Kind::kString) make_.corrupt("the name of a class should be a text");
        push_class(module->text, name->text);
        return true;
      }
      case 'R':
      case 0x81: {
        const Built* arguments = pop();
        const Built* callee = pop();
        push(make_.call(*callee, *arguments));
        return true;
      }
      case 0x92: {
        const Built *keywords = pop(), *arguments = pop(), *callee = pop();
        Built* made = make_.call(*callee, *arguments);
        make_.add_entries_of(*made, *keywords);
        push(made);
        return true;
      }
      case 'b': {
        Built* state = pop();
        set_state(top(), *state);
        return true;
      }
      case 'Q': {
        const Built* id = pop();
        push(make_.storage(*id));
        return true;
      }
      default:
        return false;
    }
  }

  void remember(uint64_t index) {
    // A pickler numbers what it remembers from 0: it cannot have come to a number that is larger than the pickle so far.
    if (index > in_.offset())
      make_.corrupt("a value is remembered as number " + std::to_string(index) + ", and there are not so many");
    Built* value = &top();
    if (index >= memo_.size()) {
      make_.grow(memo_, index + 1 - memo_.size());
      memo_.resize(index + 1);
    }
    memo_[index] = value;
  }
  void recall(uint64_t index) {
    if (index >= memo_.size() || !memo_[index])
      make_.corrupt("the remembered value " + std::to_string(index) + " is wanted, and there is none");
    push(memo_[index]);
  }
  uint64_t index_of(std::string_view digits) {
    uint64_t index = 0;
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (code != std::errc() || end != digits.data() + digits.size())
      make_.corrupt("a number of a remembered value should be here, found " + shown(digits));
    return index;
  }

  bool remembered(unsigned char instruction) {
    switch (instruction) {
      case 0x80:
        if (const int protocol = in_.number<uint8_t>("a protocol"); protocol > 5)
          make_.unsupported("the pickle has protocol " + std::to_string(protocol) + "; up to 5 are read",
                            "save it with pickle_protocol=2");
        return true;
      case 0x95:
        in_.need(length<uint64_t>("a frame"), "a frame");
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
        make_.unsupported("the pickle has the instruction " + std::string(name) + ", which torch.save does not write",
                          "save it with torch.save and its default protocol");
      default:
        make_.corrupt("no pickle has the instruction " + std::string(name));
    }
  }

  Cursor& in_;
  Maker make_;
  std::vector<Built*> stack_, memo_;
  std::vector<size_t> marks_;
};

}  // namespace

Pickle unpickle(Cursor& cursor, const PickleLimits& limits) { return Unpickler(cursor, limits).run(); }

}  // namespace gannet::exchange
