"""Cases: Einsum, with and without an ellipsis."""

from __future__ import annotations

from tdl_cases.values import Row, real

CASES: dict[str, list[Row]] = {
    "Einsum": [
        ([real(6, 12), real(12, 6)], {"equation": "ij,jk->ik"}, "i k j"),
        ([real(6, 4, 6), real(2, 6, 4)], {"equation": "bqd,hbq->bhd"}, "b h d q"),
        ([real(6, 3, 12), real(12, 6)], {"equation": "...d,de->...e"}, "e1 e0 e d"),
        ([real(1, 6, 4), real(6, 6, 4)], {"equation": "...ad,...ad->...a"}, "e0 a d"),
        ([real(6, 12)], {"equation": "ab->ba"}, "b a"),
        ([real(6, 12)], {"equation": "ab->"}, "a b"),
        ([real(6, 12, 12)], {"equation": "baa->b"}, "b"),
        ([real(6, 4), real(6, 4)], {"equation": "ab,ab->ab"}, "a b"),
        ([real(6, 4), real(4)], {"equation": "ab,c->ca"}, "c a b"),
    ],
}
