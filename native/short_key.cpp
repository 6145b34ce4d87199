#include "short_key.hpp"

namespace gristmill {

namespace {
constexpr uint64_t ones(size_t bytes) { return bytes >= 8 ? ~0ull : (1ull << 8 * bytes) - 1; }
}  // namespace

#define ROW(n) {ones(n), ones(n > 8 ? n - 8 : 0)}
const ShortKey::Mask ShortKey::kMask[16] = {ROW(0), ROW(1), ROW(2),  ROW(3),  ROW(4),  ROW(5),  ROW(6),  ROW(7),
                                            ROW(8), ROW(9), ROW(10), ROW(11), ROW(12), ROW(13), ROW(14), ROW(15)};
#undef ROW

}  // namespace gristmill
