/** The page's icon: two rails and a signal. */
export const favicon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">
<rect width="32" height="32" rx="8" fill="#3457d5"/>
<path d="M8 26 14 6M24 26 18 6" stroke="#fff" stroke-width="2.6" stroke-linecap="round"/>
<path d="M9.5 21h13M11 16h10M12.4 11h7.2" stroke="#fff" stroke-width="2.6" stroke-linecap="round" opacity=".65"/>
</svg>
`;
