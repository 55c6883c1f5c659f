r"""The formula of every loss as LaTeX, and what the symbols of each are.

A sibling of the docstrings, which ``cml losses NAME`` prints as plain text.
"""

from __future__ import annotations

FORMULAS = {
    "log-ratio": r"\frac{1}{A} \sum_a \frac{2 \sum_i w_{ai} (r_{ai} - \bar r_a)^2}{1 - \sum_i w_{ai}^2}, \quad"
    r" r_{ai} = \log(D(f_a, f_i) + \epsilon) - p \log \delta_{ai}, \quad \bar r_a = \sum_i w_{ai} r_{ai},"
    r" \quad \sum_i w_{ai} = 1",
    "binary": r"\ell\big(\{(a, p)\}, \{(a, n)\}\big), \quad p \in P(a), \; n \in N(a) \text{ by the rule}",
    "binary-triplet": r"\mathrm{mean}_{a,\, p \in P(a),\, n \in N(a)} \; [\, D(f_a, f_p) - D(f_a, f_n) + m \,]_+",
    "contrastive": r"\mathrm{mean}_{(i, p)} \; D(f_i, f_p)^2 + \mathrm{mean}_{(i, n)} \; [\, m - D(f_i, f_n) \,]_+^2",
    "cosent": r"\log\Big(1 + \sum_{p, q:\, \delta_p > \delta_q} \exp\big(\lambda (\cos_p - \cos_q)\big)\Big)",
    "dense-triplet": r"\mathrm{mean}_{a, i, j:\, \delta_{ai} < \delta_{aj}} \; [\, D(f_a, f_i) - D(f_a, f_j) + m \,]_+",
    "direction-multi-similarity": r"\mathrm{mean}_i \;"
    r" \frac{1}{\alpha} \log\Big(1 + \sum_p e^{-\alpha (s_{ip} - b)}\Big)"
    r" + \frac{1}{\beta} \log\Big(1 + \sum_n e^{\beta (s_{in} - b) - \gamma \cos(f_n - f_i,\, f_{p^*} - f_i)}\Big)",
    "direction-proxy-nca": r"\mathrm{mean}_i \; D(f_i, p_y) + \log \sum_{k \neq y}"
    r" \exp\big(-D(f_i, p_k) - \gamma \cos(p_k - f_i,\, p_y - f_i)\big)",
    "direction-triplet": r"\mathrm{mean}_{a, p, n} \;"
    r" [\, D(f_a, f_p) - D(f_a, f_n) + m - \gamma \cos(f_n - f_a,\, f_p - f_a) \,]_+",
    "generalised-contrastive": r"- \mathrm{mean}_{(a, j),\, w_{aj} > 0} \; w_{aj} \log q_j, \quad"
    r" w_{aj} = \Big[\, 1 - \frac{\delta_{aj}}{\rho} \,\Big]_+,"
    r" \quad q = \mathrm{softmax}_j\Big(-\frac{D(f_a, f_j)}{t}\Big)",
    "graded-contrastive": r"\mathrm{mean}_{a, j} \; \tfrac{1}{2} \psi\, D^2"
    r" + \tfrac{1}{2} (1 - \psi) [\, m - D \,]_+^2,"
    r" \quad \psi = \Big[\, 1 - \frac{\delta_{aj}}{\rho\, \sigma} \,\Big]_+",
    "h-ap": r"\mathrm{mean}_a \; 1 - \frac{\sum_k h_k / r_k}{\sum_k g_k}, \quad"
    r" h_k = g_k + \sum_{s_j > s_k} \min(g_j, g_k), \quad"
    r" r_k = 1 + \sum_{g_j < g_k} \mathrm{sigmoid}\Big(\frac{s_j - s_k}{t}\Big) + \sum_{g_j \ge g_k} [s_j > s_k]",
    "kernel-supcon": r"\mathrm{mean}_a \; - \sum_j \frac{w_j}{\sum_k w_k} \log \frac{e^{\cos_{aj} / t}}"
    r"{\sum_k e^{\cos_{ak} / t}}, \quad w_j = \exp\Big(-\frac{\delta_{aj}^2}{2 h^2}\Big)",
    "lambda-ndcg": r"\mathrm{mean}_a \sum_{g_i > g_j} \frac{g_i - g_j}{\mathrm{IDCG}}"
    r" \left| \frac{1}{\log_2(1 + r_i)} - \frac{1}{\log_2(1 + r_j)} \right|"
    r" \log\Big(1 + e^{-(s_i - s_j) / t}\Big)",
    "language-guidance": r"\ell + \omega\, \mathrm{mean}_i \; \mathrm{KL}\Big(\mathrm{softmax}_j \frac{S_{ij}}{t} \,"
    r"\; \Vert \; \mathrm{softmax}_j \frac{T_{ij} + \gamma [y_i = y_j]}{t}\Big)",
    "lifted-structure": r"\mathrm{mean}_{(i, j)} \; \tfrac{1}{2} \Big[\, D_{ij} + \log\Big(\sum_{n} e^{m - D_{in}}"
    r" + \sum_{n} e^{m - D_{jn}}\Big) \,\Big]_+^2",
    "logistic-triplet": r"- \mathrm{mean}_t \; \log\big(e + (1 - 2e)\, \mathrm{sigmoid}(x_t)\big), \quad"
    r" x_t = 2 s \log \frac{D(f_a, f_j) + \epsilon}{D(f_a, f_i) + \epsilon}",
    "matryoshka": r"\mathrm{mean}_{q \in Q} \; \ell\big(f_{1..q},\, \delta\big)",
    "multi-similarity": r"\mathrm{mean}_i \; \frac{1}{\alpha} \log\Big(1 + \sum_p e^{-\alpha (s_{ip} - b)}\Big)"
    r" + \frac{1}{\beta} \log\Big(1 + \sum_n e^{\beta (s_{in} - b)}\Big)",
    "n-pair": r"\mathrm{mean}_i \; \log\Big(1 + \sum_{j \neq i} e^{f_{a_i} \cdot f_{p_j} - f_{a_i} \cdot f_{p_i}}\Big)",
    "pair-log-ratio": r"\frac{2}{P - 1} \sum_p (r_p - \bar r)^2, \quad"
    r" r_p = \log(D_p + \epsilon) - e \log \delta_p, \quad \bar r = \mathrm{mean}_p \; r_p",
    "proxy-anchor": r"\frac{1}{|P^+|} \sum_{p \in P^+} \log\Big(1 + \sum_{x \in X_p^+} e^{-\alpha (s - \Delta)}\Big)"
    r" + \frac{1}{|P|} \sum_{p \in P} \log\Big(1 + \sum_{x \in X_p^-} e^{\alpha (s + \Delta)}\Big)",
    "proxy-gml": r"- \mathrm{mean}_i \; \log \frac{e^{Z_{iy}}}{\sum_{k \text{ kept}} e^{Z_{ik}}}"
    r" + \lambda L_{\mathrm{proxies}},"
    r" \quad Z_{ik} = \sum_{j \text{ kept, of class } k} s_{ij}",
    "proxy-nca": r"- \mathrm{mean}_i \; \log \frac{e^{-\sigma D(f_i, p_y)}}{\sum_k e^{-\sigma D(f_i, p_k)}}",
    "proxy-nca-pp": r"- \mathrm{mean}_i \; \log \frac{e^{-D(f_i, p_y) / T}}{\sum_k e^{-D(f_i, p_k) / T}}",
    "rank-n-contrast": r"- \mathrm{mean}_{a, j} \; \log"
    r" \frac{e^{s_{aj}}}{\sum_{\delta_{ak} \ge \delta_{aj}} e^{s_{ak}}},"
    r" \quad s_{ak} = -\frac{d(f_a, f_k)}{t}",
    "ranked-list": r"\mathrm{mean}_a \; \tfrac{1}{2} \Big(\mathrm{mean}_p \; [\, D_{ap} - (\alpha - m) \,]"
    r" + \sum_n w_{an} (\alpha - D_{an})\Big), \quad"
    r" w_{an} = \mathrm{softmax}_n\big(T (\alpha - D_{an})\big)",
    "regression": r"\mathrm{mean}_{i, v} \; h\Big(f_{iv} - \frac{y_{iv} - \bar y_v}{\sigma}\Big), \quad h(x) = x^2",
    "relaxed-contrastive": r"\mathrm{mean}_a \sum_j w\, D_{aj}^2 + (1 - w) [\, \Delta - D_{aj} \,]_+^2, \quad"
    r" D_{aj} = \frac{d(f_a, f_j)}{\mathrm{mean}_k\, d(f_a, f_k)}, \quad"
    r" w = \exp\Big(-\frac{(\delta_{aj} / \lambda)^2}{\sigma}\Big)",
    "rkd-distance": r"\mathrm{mean}_{a, j} \; h\Big(\frac{d(f_a, f_j)}{\mathrm{mean}} - "
    r"\frac{\delta_{aj}}{\mathrm{mean}_y}\Big),"
    r" \quad h(x) = \tfrac{1}{2} x^2 \text{ for } |x| \le 1, \text{ else } |x| - \tfrac{1}{2}",
    "soft-target": r"- \mathrm{mean}_a \sum_j p_j \log q_j, \quad p = \mathrm{softmax}_j\Big("
    r"-\frac{\delta_{aj}}{t_y}\Big),"
    r" \quad q = \mathrm{softmax}_j\Big(-\frac{D(f_a, f_j)}{t}\Big)",
    "soft-triple": r"- \mathrm{mean}_i \; \log \frac{e^{\lambda (S_y - m)}}{e^{\lambda (S_y - m)} +"
    r" \sum_{k \neq y} e^{\lambda S_k}}, \quad S_k = \sum_m \mathrm{softmax}_m\Big(\frac{s_{km}}{\gamma}\Big) s_{km}",
    "sum": r"\sum_k \omega_k \, \ell_k(f, \delta)",
    "triplet": r"\mathrm{mean}_{(a, p, n) \text{ mined}} \; [\, D(f_a, f_p)^2 - D(f_a, f_n)^2 + m \,]_+",
}

_SQUARED, _PLAIN = r"$D$ is the squared Euclidean distance", r"$d$ is the Euclidean distance"
_EUCLIDEAN = r"$D$ is the Euclidean distance"
_HINGE = r"$[\, x \,]_+$ is $\max(x, 0)$"
_ANCHORED = r"$f_a$ is the embedding of the anchor, $f_j$ that of another item $j$ of the batch"
_LABEL = r"$\delta_{aj}$ is their label distance"
_CLASS = r"$f_i$ is the embedding of item $i$"
_MS = r"$s_{ip}$ and $s_{in}$ are the cosines of item $i$ with its positives $p$ (of its class) and negatives $n$"
_MS_SET = r"$\alpha$, $\beta$ and $b$ are the settings `alpha`, `beta` and `base`"
_GAMMA = r"$\gamma$ is the setting `gamma`"
_DIRECTION = r"$\cos$ is the cosine of two directions"
_TRIPLET = r"$f_a$, $f_p$ and $f_n$ are the embeddings of an anchor, a positive and a negative"
_MARGIN = r"$m$ is the setting `margin`"
_CLASS_PROXY = r"$p_k$ is the proxy of class $k$ and $p_y$ that of the item's own class"

LEGENDS = {
    "log-ratio": [
        r"$A$ is the number of anchors",
        r"$f_a$ is the embedding of anchor $a$, $f_i$ that of another item $i$ of the batch",
        _SQUARED,
        r"$\delta_{ai}$ is their label distance",
        r"$p$ is the exponent `label_exponent`",
        r"$w_{ai}$ is the weight of item $i$, by the setting `weights`",
        r"$\epsilon$ is the setting `eps`",
    ],
    "binary": [
        r"$\ell$ is the loss over classes that the setting `loss` names",
        r"$P(a)$ and $N(a)$ are the positives and negatives of anchor $a$, by the setting `rule`",
    ],
    "binary-triplet": [
        _TRIPLET,
        r"$P(a)$ and $N(a)$ are the positives and negatives of anchor $a$, by the setting `rule`",
        _SQUARED,
        _MARGIN,
        _HINGE,
    ],
    "contrastive": [
        r"$(i, p)$ are the pairs of one class, $(i, n)$ those of two",
        r"$f_i$, $f_p$ and $f_n$ are embeddings",
        _EUCLIDEAN,
        _MARGIN,
        _HINGE,
    ],
    "cosent": [
        r"$\cos_p$ is the cosine of the embeddings of pair $p$",
        r"$\delta_p$ is its label distance",
        r"$\lambda$ is the setting `scale`",
    ],
    "dense-triplet": [
        r"$f_a$ is the embedding of the anchor, $f_i$ and $f_j$ are those of two other items",
        r"$\delta_{ai}$ and $\delta_{aj}$ are their label distances",
        _SQUARED,
        _MARGIN,
        _HINGE,
    ],
    "direction-multi-similarity": [
        _MS,
        r"$f_i$ and $f_n$ are embeddings, and $f_{p^*}$ is that of the positive with the least cosine",
        _DIRECTION,
        _MS_SET,
        _GAMMA,
    ],
    "direction-proxy-nca": [_CLASS, _CLASS_PROXY, _SQUARED, _DIRECTION, _GAMMA],
    "direction-triplet": [_TRIPLET, _SQUARED, _DIRECTION, _MARGIN, _GAMMA, _HINGE],
    "generalised-contrastive": [
        _ANCHORED,
        _SQUARED,
        _LABEL,
        r"$\rho$ is the setting `label_reach`",
        r"$w_{aj}$ is shown for `weights=linear`",
        r"$t$ is the setting `temperature`",
        _HINGE,
    ],
    "graded-contrastive": [
        r"$D$ is the Euclidean distance of the embeddings of anchor $a$ and item $j$",
        _LABEL,
        r"$\rho$, $\sigma$ and $m$ are the settings `reach`, `label_scale` and `margin`",
        _HINGE,
    ],
    "h-ap": [
        r"$s_j$ is the cosine of item $j$ with anchor $a$",
        r"$g_j$ is its gain $e^{-\delta_{aj} / \delta_{ar}}$, where $\delta$ is the label distance and $r$ "
        r"the item that is `neighbors`-th nearest in label",
        r"$t$ is the setting `temperature`",
    ],
    "kernel-supcon": [
        r"$\cos_{aj}$ is the cosine of the embeddings of anchor $a$ and item $j$",
        r"$\delta_{aj}$ is their label distance",
        r"$t$ is the setting `temperature`",
        r"$h$ is `bandwidth` times `label_scale`",
    ],
    "lambda-ndcg": [
        r"$s_i$ is the cosine of item $i$ with anchor $a$, and $r_i$ the rank that it gives",
        r"$g_i$ is its gain $e^{-\delta_{ai} / \delta_{ar}}$, where $\delta$ is the label distance and $r$ "
        r"the item that is `neighbors`-th nearest in label",
        r"$\mathrm{IDCG}$ is the DCG of the order of the labels",
        r"$t$ is the setting `temperature`",
    ],
    "language-guidance": [
        r"$\ell$ is the loss over classes that the setting `loss` names",
        r"$S_{ij}$ is the cosine of the embeddings of items $i$ and $j$",
        r"$T_{ij}$ is the cosine of the word vectors of their classes' names",
        r"$[y_i = y_j]$ is 1 where both are of one class, else 0",
        r"$\omega$, $\gamma$ and $t$ are the settings `weight`, `gamma` and `temperature`",
    ],
    "lifted-structure": [
        r"$(i, j)$ are the pairs of one class, and $n$ the items of other classes",
        r"$D_{ij}$ is the Euclidean distance of embeddings",
        _MARGIN,
        _HINGE,
    ],
    "matryoshka": [
        r"$\ell$ is the loss that the setting `loss` names",
        r"$f_{1..q}$ are the first $q$ numbers of the embeddings",
        r"$Q$ are the sizes `dimensions` and the whole one",
        r"$\delta$ are the label distances",
    ],
    "multi-similarity": [_MS, _MS_SET],
    "n-pair": [
        r"$f_{a_i}$ and $f_{p_i}$ are the embeddings of two items of one class $i$",
        r"$f_{p_j}$ is that of an item of another class $j$",
    ],
    "proxy-anchor": [
        r"$P$ are the proxies of all classes, and $P^+$ those of the classes of the batch",
        r"$X_p^+$ and $X_p^-$ are the batch's items of the class of proxy $p$ and of others",
        r"$s$ is the cosine of item $x$ and proxy $p$",
        r"$\alpha$ and $\Delta$ are the settings `alpha` and `delta`",
    ],
    "proxy-gml": [
        r"$s_{ij}$ is the cosine of item $i$ and proxy $j$",
        r"an item keeps the proxies of its own class $y$ and the nearest others, by the setting `share`",
        r"$L_{\mathrm{proxies}}$ is the same of the proxies among themselves",
        r"$\lambda$ is the setting `regularization`",
    ],
    "proxy-nca": [_CLASS, _CLASS_PROXY, _SQUARED, r"$\sigma$ is the setting `scale`"],
    "proxy-nca-pp": [_CLASS, _CLASS_PROXY, _SQUARED, r"$T$ is the setting `temperature`"],
    "rank-n-contrast": [
        r"$f_a$ is the embedding of the anchor, $f_k$ that of another item $k$ of the batch",
        _PLAIN,
        r"$\delta_{aj}$ is the label distance of anchor $a$ and item $j$",
        r"$t$ is the setting `temperature`",
    ],
    "ranked-list": [
        r"$D_{ap}$ and $D_{an}$ are the Euclidean distances of item $a$ from its positives $p$ beyond $\alpha - m$"
        r" and from its negatives $n$ within $\alpha$",
        r"$\alpha$, $m$ and $T$ are the settings `alpha`, `margin` and `temperature`",
    ],
    "pair-log-ratio": [
        r"$D_p$ is the squared Euclidean distance of the two embeddings of pair $p$, one of the $P$ known pairs of the"
        " batch",
        r"$\delta_p$ is its label distance, raised to the floor",
        r"$e$ and $\epsilon$ are the settings `label_exponent` and `eps`",
    ],
    "logistic-triplet": [
        r"$D(f_a, f_i)$ and $D(f_a, f_j)$ are the squared Euclidean distances of anchor $a$ to the item that was judged"
        " to be nearer and to the other one, in triplet $t$",
        r"$s$ and $e$ are the scale and the flip rate, which are learned",
        r"$\epsilon$ is the setting `eps`",
    ],
    "regression": [
        r"$f_{iv}$ and $y_{iv}$ are coordinate $v$ of the embedding and of the label of item $i$",
        r"$\bar y_v$ is the mean of the training labels, and $\sigma$ the root of their mean variance",
        r"$h$ is another function with other settings of `penalty`",
    ],
    "relaxed-contrastive": [
        _ANCHORED,
        r"$d$ is the Euclidean distance, and $D_{aj}$ that in units of its mean over the anchor's items",
        _LABEL,
        r"$\lambda$, $\sigma$ and $\Delta$ are the settings `label_scale`, `sigma` and `delta`",
        _HINGE,
    ],
    "rkd-distance": [
        _ANCHORED,
        _PLAIN,
        _LABEL,
        r"$\mathrm{mean}$ and $\mathrm{mean}_y$ are the means of both distances over all pairs of the batch",
    ],
    "soft-target": [
        _ANCHORED,
        _SQUARED,
        _LABEL,
        r"$t_y$ is `label_temperature` times `label_scale`",
        r"$t$ is the setting `temperature`",
    ],
    "soft-triple": [
        r"$s_{km}$ is the cosine of the item and centre $m$ of class $k$",
        r"$y$ is the item's class",
        r"$\lambda$, $\gamma$ and $m$ (beside $S_y$) are the settings `scale`, `gamma` and `margin`",
    ],
    "sum": [
        r"$\ell_k$ are the losses that the setting `parts` names, and $\omega_k$ their weights",
        r"$f$ are the embeddings, and $\delta$ the label distances",
    ],
    "triplet": [_TRIPLET, r"which triplets are mined, the setting `mining` says", _EUCLIDEAN, _MARGIN, _HINGE],
}


def legend(name: str) -> str:
    """What the symbols of a formula are, as a Markdown list."""
    return "\n".join(f"- {one[:1].upper()}{one[1:]}." for one in LEGENDS[name])
